import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { ask, embeddedSocket, ensureEmbeddedRedis } from '../../src/store/embedded.js';
import { openStore, redisStatus, stopRedis } from '../../src/store/index.js';
import { failure, script, until, useHome } from './home.js';

const home = useHome();
const path = process.env.PATH;

afterEach(async () => {
  process.env.PATH = path;
  process.env.OOMTUNE_HOME = home;
  await stopRedis();
});

/** Pids of living redis-servers whose working folder is this home's. */
const serversOf = (folder: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return (
          execFileSync('readlink', [`/proc/${pid}/cwd`], { stdio: ['ignore', 'pipe', 'ignore'] })
            .toString()
            .trim() === join(folder, 'redis') &&
          execFileSync('cat', [`/proc/${pid}/comm`])
            .toString()
            .startsWith('redis-server')
        );
      } catch {
        return false;
      }
    });

test('eight processes that start it at once share one server', async () => {
  const source = `
    const { openStore } = await import(DIST + '/store/index.js');
    const store = await openStore();
    await store.connection.redis.incr('seen');
    say(/process_id:(\\d+)/.exec(await store.connection.redis.info())[1]);
    await store.close();`;
  const pids = await Promise.all(Array.from({ length: 8 }, () => script(source).next()));
  expect(new Set(pids).size).toBe(1);
  expect(serversOf(home)).toEqual([Number(pids[0])]);
  const store = await openStore();
  expect(await store.connection.redis.get('seen')).toBe('8');
  await store.close();
});

test('it listens on a private unix socket only, keeps an append-only file and never evicts', async () => {
  const store = await openStore();
  const { redis } = store.connection;
  const config = async (name: string) => ((await redis.config('GET', name)) as string[])[1];
  expect(store.url).toBe(`unix://${home}/redis/redis.sock`);
  expect(await config('port')).toBe('0');
  expect(await config('appendonly')).toBe('yes');
  expect(await config('appendfsync')).toBe('everysec'); // with `always` a full disk would end the server
  expect(await config('maxmemory-policy')).toBe('noeviction');
  await store.close();
  const modes = (folder: string): void => {
    expect((statSync(folder).mode & 0o777).toString(8), folder).toBe('700');
    for (const name of readdirSync(folder)) {
      const at = join(folder, name);
      if (lstatSync(at).isDirectory()) modes(at);
      else expect((lstatSync(at).mode & 0o777).toString(8), at).toBe('600');
    }
  };
  modes(join(home, 'redis'));
});

test('it lives in a session of its own and outlives who started it', async () => {
  const starter = script(`
    const { openStore } = await import(DIST + '/store/index.js');
    await openStore();
    say(String(process.pid));
    setInterval(() => {}, 1000);`);
  await starter.next();
  const { pid } = await redisStatus();
  const stat = execFileSync('cat', [`/proc/${pid}/stat`])
    .toString()
    .split(' ');
  expect(Number(stat[5])).toBe(pid); // its own session
  starter.child.kill('SIGKILL');
  await starter.lines;
  expect((await redisStatus()).pid).toBe(pid);
});

test('kill -9 loses nothing that was written, and the next verb starts it again over what the crash left', async () => {
  const first = await openStore();
  for (let n = 0; n < 200; n += 1) await first.connection.redis.set(`k${n}`, n);
  // Written at once, unless the sync of an earlier second is still under way: a slow disk delays it by two seconds at most.
  await until(async () => /aof_buffer_length:0\r/.test(await first.connection.redis.info('persistence')));
  const { pid } = await redisStatus();
  await first.close();
  process.kill(pid as number, 'SIGKILL');
  await until(async () => !(await redisStatus()).running);
  expect(readdirSync(join(home, 'redis'))).toContain('redis.sock'); // stale
  expect(readdirSync(join(home, 'redis'))).toContain('redis.pid');
  const second = await openStore();
  expect(await second.connection.redis.get('k199')).toBe('199');
  expect((await redisStatus()).pid).not.toBe(pid);
  await second.close();
});

test('a process that is connected when it dies starts it again and goes on', async () => {
  const told: string[] = [];
  const store = await openStore({ onOutage: (state) => told.push(state) });
  await store.connection.redis.set('kept', 'yes');
  process.kill((await redisStatus()).pid as number, 'SIGKILL');
  expect(await store.connection.redis.get('kept')).toBe('yes');
  await until(() => told.includes('back'));
  expect(told).toEqual(['lost', 'back']);
  await store.close();
});

test('one that answers with an error is there: nobody takes it for gone, starts another, or says that it was stopped', async () => {
  const store = await openStore({ onOutage: () => {} });
  const { redis } = store.connection;
  const pid = (await redisStatus()).pid;
  await redis.config('SET', 'busy-reply-threshold', '100');
  const busy = redis.eval('local t = redis.call("TIME")[1] while redis.call("TIME")[1] - t < 3 do end', 0);
  await until(async () => (await ask(embeddedSocket(), 'PING')).is === 'error');
  expect(await ask(embeddedSocket(), 'PING')).toMatchObject({ is: 'error', message: expect.stringContaining('BUSY') });
  expect(await redisStatus()).toMatchObject({ running: true, pid: null });
  expect(await ensureEmbeddedRedis()).toBe(embeddedSocket());
  const error = await failure(stopRedis());
  expect([error.code, error.message]).toEqual(['OOMTUNE_REDIS_REFUSED', expect.stringContaining('BUSY')]);
  await busy;
  expect((await redisStatus()).pid).toBe(pid);
  expect(serversOf(home)).toEqual([pid]);
  await redis.config('SET', 'requirepass', 'word');
  expect(await ask(embeddedSocket(), 'INFO')).toMatchObject({ is: 'error' });
  expect((await redisStatus()).running).toBe(true);
  await redis.config('SET', 'requirepass', '');
  await store.close();
});

test('redis stop is final: who is connected does not start it again', async () => {
  const store = await openStore({ onOutage: () => {} });
  expect(await stopRedis()).toBe(true);
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect((await redisStatus()).running).toBe(false);
  expect(serversOf(home)).toEqual([]);
  await store.close();
  expect(await stopRedis()).toBe(false);
});

test('a home whose path is too long for a socket has it in a private folder instead', async () => {
  const long = join(home, 'x'.repeat(90), 'y'.repeat(60));
  mkdirSync(long, { recursive: true });
  process.env.OOMTUNE_HOME = long;
  const store = await openStore();
  const socket = store.url.replace('unix://', '');
  expect(Buffer.byteLength(socket)).toBeLessThanOrEqual(107);
  expect(statSync(join(socket, '..')).mode & 0o777).toBe(0o700);
  expect(await store.connection.redis.ping()).toBe('PONG');
  await store.close();
  await stopRedis();
  // A link that somebody else put there is not followed
  const folder = join(socket, '..');
  rmSync(folder, { recursive: true });
  symlinkSync(home, folder);
  const error = await failure(openStore());
  expect(error.code).toBe('OOMTUNE_HOME_UNUSABLE');
  expect(error.message).toMatch(/a link stands in its place/);
  rmSync(folder);
});

test('without redis-server it says so, with the command that installs it', async () => {
  process.env.PATH = '/nowhere';
  const error = await failure(openStore());
  expect(error.code).toBe('OOMTUNE_REDIS_MISSING');
  expect(error.remedy).toContain('apt-get install -y redis-server');
});

test('a redis-server whose library is missing is told with what the loader says of it', async () => {
  const bin = join(home, 'lacking');
  mkdirSync(bin);
  const said = 'redis-server: error while loading shared libraries: liblzf.so.1: cannot open shared object file';
  // Stands for a server on a machine without that library, which cannot be taken away here.
  writeFileSync(join(bin, 'redis-server'), `#!/bin/sh\necho '${said}' >&2\nexit 127\n`, { mode: 0o755 });
  process.env.PATH = `${bin}:${path}`;
  const error = await failure(openStore());
  expect(error.code).toBe('OOMTUNE_REDIS_UNREACHABLE');
  expect(error.message).toContain(said);
});

test('a redis-server that finds its libraries by LD_LIBRARY_PATH starts as it does in a shell', async () => {
  const bin = join(home, 'module');
  mkdirSync(bin);
  const real = execFileSync('sh', ['-c', 'command -v redis-server'], { encoding: 'utf8' }).trim();
  // Stands for a server of an environment module or of conda, whose libraries are not among the system's.
  const script = `#!/bin/sh\n[ "$LD_LIBRARY_PATH" = ${bin} ] || exit 127\nexec ${real} "$@"\n`;
  writeFileSync(join(bin, 'redis-server'), script, { mode: 0o755 });
  process.env.OOMTUNE_HOME = join(home, 'by-module');
  process.env.PATH = `${bin}:${path}`;
  process.env.LD_LIBRARY_PATH = bin;
  try {
    await (await openStore()).close();
  } finally {
    await stopRedis();
    delete process.env.LD_LIBRARY_PATH;
  }
});

test('a broken append-only file is told with the last line of its log', async () => {
  const other = join(home, 'broken');
  process.env.OOMTUNE_HOME = other;
  await (await openStore()).close();
  await stopRedis();
  const folder = join(other, 'redis', 'appendonlydir');
  for (const name of readdirSync(folder))
    if (name.endsWith('.rdb')) writeFileSync(join(folder, name), 'not an rdb file');
  const error = await failure(openStore());
  expect(error.code).toBe('OOMTUNE_REDIS_UNREACHABLE');
  expect(error.message).toMatch(/did not start: .+/);
  expect(error.remedy).toContain('redis.log');
});
