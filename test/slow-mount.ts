import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const SERVER = join(import.meta.dirname, 'fixtures', 'slow_mount.py');

/** A mounted file system that answers until it is told not to: what a dead NFS server, or a stopped sshfs, is to its users. */
export interface SlowMount {
  path: string;
  /** From now on no request is answered, and who waits for one cannot be killed. */
  silence(): void;
  /** Ends it: whoever waits is let go. */
  end(): Promise<void>;
}

/** Why there can be none here, printed; null: there can. */
export function cannotMount(): string | null {
  const why = !existsSync('/dev/fuse') ? 'there is no /dev/fuse' : process.getuid?.() !== 0 ? 'it takes root' : null;
  if (why !== null) console.warn(`Skipped: what stands on a file system that does not answer, as ${why}.`);
  return why;
}

/** Serves copies of `files`, by name. */
export async function slowMount(files: Record<string, string> = {}): Promise<SlowMount> {
  const path = mkdtempSync(join(tmpdir(), 'oomtune-slow-'));
  const words = Object.entries(files).map(([name, file]) => `${name}=${file}`);
  const server = spawn('python3', [SERVER, path, ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(server, 'exit');
  let said = '';
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (text) => (said += text));
  await Promise.race([once(server.stdout, 'data'), ended]);
  if (!said.includes('mounted')) throw new Error(`no file system was mounted: ${said}`);
  return {
    path,
    silence: () => server.kill('SIGUSR1'),
    end: async () => {
      server.kill('SIGKILL');
      await ended;
      spawnSync('umount', ['--lazy', path]);
      rmSync(path, { recursive: true, force: true });
    },
  };
}
