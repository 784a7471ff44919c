import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';
import { stopEmbeddedRedis } from '../../src/store/embedded.js';
import type { Store } from '../../src/store/index.js';
import { pairs } from '../../src/store/replies.js';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const DIST = join(ROOT, 'dist');

/** A state folder of this test file alone; its Redis is stopped and the folder removed at the end. */
export function useHome(): string {
  const home = mkdtempSync(join(tmpdir(), 'oomtune-store-'));
  process.env.OOMTUNE_HOME = home;
  delete process.env.OOMTUNE_REDIS_URL;
  afterAll(async () => {
    process.env.OOMTUNE_HOME = home;
    await stopEmbeddedRedis();
    rmSync(home, { recursive: true, force: true });
  });
  return home;
}

/** Runs JavaScript in a process of its own, as an ES module with `dist/` at hand; `say(line)` prints, the lines are returned. */
export function script(
  source: string,
  env: NodeJS.ProcessEnv = {},
): { child: ChildProcess; lines: Promise<string[]>; next(): Promise<string> } {
  const prelude = `const DIST = ${JSON.stringify(DIST)}; const say = (text) => process.stdout.write(text + '\\n');\n`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', prelude + source], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const got: string[] = [];
  const waiting: ((line: string) => void)[] = [];
  let rest = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    for (const line of parts) {
      const waiter = waiting.shift();
      if (waiter) waiter(line);
      else got.push(line);
    }
  });
  const all: string[] = got;
  return {
    child,
    lines: once(child, 'close').then(() => all),
    next: () =>
      new Promise((resolve) => {
        const line = got.shift();
        if (line !== undefined) resolve(line);
        else waiting.push(resolve);
      }),
  };
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

/** A redis-server of the test's own, on TCP. */
export async function startRedis(
  args: string[] = [],
): Promise<{ port: number; child: ChildProcess; stop(): Promise<void> }> {
  const port = await freePort();
  const child = spawn('redis-server', ['--port', String(port), '--save', '', '--appendonly', 'no', ...args], {
    stdio: 'pipe',
  });
  await new Promise<void>((resolve, reject) => {
    child.stdout?.on('data', (data: Buffer) => data.includes('Ready to accept') && resolve());
    child.once('exit', () => reject(new Error('redis-server ended')));
  });
  return {
    port,
    child,
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

/** Waits until it is true, looking every 20 ms; throws after `seconds`. */
export async function until(what: () => boolean | Promise<boolean>, seconds = 20): Promise<void> {
  for (const deadline = Date.now() + seconds * 1000; Date.now() < deadline; ) {
    if (await what()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`not within ${seconds} s: ${what}`);
}

export const failure = async (promise: Promise<unknown>): Promise<Error & { code?: string; remedy?: string }> => {
  try {
    await promise;
  } catch (error) {
    return error as Error;
  }
  throw new Error('it did not fail');
};

/** The latest entries of the stream of events, oldest first. */
export async function latestEvents({ connection, keys }: Store, count: number): Promise<Record<string, string>[]> {
  const entries = await connection.redis.xrevrange(keys.events, '+', '-', 'COUNT', count);
  return entries.reverse().map(([id, fields]) => ({ id, ...pairs(fields) }));
}
