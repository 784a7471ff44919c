import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

/**
 * Holds a kernel lock on a file for as long as this process lives: a small child has it, whose input ends with us. A
 * crash leaves nothing behind, and two that start at once cannot both have it. Null: somebody else holds it.
 */
export async function holdLock(path: string): Promise<{ release(): void } | null> {
  closeSync(openSync(path, 'a', 0o600));
  const child = spawn('flock', ['--nonblock', path, '/bin/sh', '-c', 'echo held; read -r end'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    detached: true, // a Ctrl-C at the terminal is for us
  });
  const held = await new Promise<boolean>((resolve) => {
    child.stdout.once('data', () => resolve(true));
    child.once('exit', () => resolve(false));
    child.once('error', () => resolve(false));
  });
  if (!held) return null;
  child.stdin.on('error', () => {});
  child.unref();
  for (const stream of [child.stdin, child.stdout]) (stream as unknown as { unref?: () => void }).unref?.();
  return { release: () => child.stdin.end() };
}
