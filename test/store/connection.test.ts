import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { failure, freePort, startRedis, until, useHome } from './home.js';
import { gpu } from './samples.js';

useHome();
const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

async function redis(args: string[] = []) {
  const server = await startRedis(args);
  stops.push(server.stop);
  return server;
}

async function store(url: string, told: string[] = []): Promise<Store> {
  const opened = await openStore({ url, onOutage: (state) => told.push(state) });
  stops.push(opened.close);
  return opened;
}

test('a Redis that is not there fails at once with a sentence and a remedy', async () => {
  const port = await freePort();
  const refused = await failure(openStore({ url: `redis://user:hunter2@127.0.0.1:${port}` }));
  expect(refused.code).toBe('OOMTUNE_REDIS_UNREACHABLE');
  expect(refused.message).toBe(`Redis at redis://127.0.0.1:${port} cannot be reached: nothing listens there.`);
  expect((await failure(openStore({ url: 'unix:///nowhere/r.sock' }))).message).toContain('there is no such socket');
  expect((await failure(openStore({ url: 'redis://no-such-host.invalid' }))).message).toContain(
    'the host is not known',
  );
});

test('a wrong or missing password is said as such, and shown nowhere in the error', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-password-'));
  stops.push(async () => rmSync(folder, { recursive: true, force: true }));
  const socket = join(folder, 'r.sock');
  const { port } = await redis(['--requirepass', 'right', '--unixsocket', socket]);
  const byFile = await failure(openStore({ url: `unix://${socket}` }));
  expect(byFile.remedy).toContain('unix:///path/to/redis.sock?username=USER&password=PASSWORD');
  await store(`unix://${socket}?password=right`);
  for (const [url, asks] of [
    [`redis://:hunter2@127.0.0.1:${port}`, 'asks for another password'],
    [`redis://127.0.0.1:${port}`, 'asks for a password'],
  ] as const) {
    const error = await failure(openStore({ url }));
    expect(error.code).toBe('OOMTUNE_REDIS_UNREACHABLE');
    expect(error.message).toContain(asks);
    expect(error.remedy).toContain('redis://:password@host:6379');
    const { inspect } = await import('node:util');
    expect(inspect(error, { depth: 9, showHidden: true })).not.toContain('hunter2');
  }
  const opened = await store(`redis://:right@127.0.0.1:${port}`);
  expect(opened.url).toBe(`redis://127.0.0.1:${port}`);
});

test('a database that Redis does not have is named, and database 0 never stands in for it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-database-'));
  stops.push(async () => rmSync(folder, { recursive: true, force: true }));
  const socket = join(folder, 'r.sock');
  const { port } = await redis(['--databases', '4', '--unixsocket', socket]);
  for (const url of [`redis://127.0.0.1:${port}/4`, `unix://${socket}?db=4`]) {
    const error = await failure(openStore({ url }));
    expect(error.code).toBe('OOMTUNE_REDIS_UNREACHABLE');
    expect(error.message).toBe(`Redis at ${url} cannot be reached: it has no such database.`);
  }
  await (await store(`redis://127.0.0.1:${port}/3`)).connection.redis.set('here', 1);
  const first = await store(`redis://127.0.0.1:${port}`);
  expect(await first.connection.redis.exists('here')).toBe(0);
});

test('a client that may not enter its database after an outage waits, and writes nothing into database 0', async () => {
  const { port } = await redis();
  const first = (await store(`redis://127.0.0.1:${port}`)).connection.redis;
  await first.call('ACL', 'SETUSER', 'dora', 'on', '>pw', '~*', '&*', '+@all');
  const told: string[] = [];
  const opened = await store(`redis://dora:pw@127.0.0.1:${port}/3`, told);
  await first.call('ACL', 'SETUSER', 'dora', '-select');
  await first.call('CLIENT', 'KILL', 'USER', 'dora');
  await until(() => told.includes('refuses'));
  const written = opened.connection.redis.set('n', 1);
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(await first.dbsize()).toBe(0);
  await first.call('ACL', 'SETUSER', 'dora', '+select');
  expect(await written).toBe('OK');
  expect(await first.dbsize()).toBe(0);
  expect(told.at(-1)).toBe('back');
});

test('a Redis that answers with an error from the beginning is told in words, with what helps', async () => {
  const { port } = await redis(['--lua-time-limit', '50']);
  const url = `redis://127.0.0.1:${port}`;
  const admin = await store(url);
  await admin.connection.redis.config('SET', 'busy-reply-threshold', '50').catch(() => {}); // its name from Redis 7 on
  const busy = admin.connection.another().eval('while true do end', 0);
  busy.catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 300));
  const error = await failure(openStore({ url }));
  expect(error).toMatchObject({ code: 'OOMTUNE_REDIS_REFUSED', remedy: 'Try again in a moment.' });
  expect(error.message).toBe('Redis refused a command: it is busy with a script.');
  await admin.connection.redis.script('KILL');
});

test('a Redis that loads its data for long is told as that', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-loading-'));
  stops.push(async () => rmSync(folder, { recursive: true, force: true }));
  const first = await redis(['--dir', folder]);
  const filled = (await store(`redis://127.0.0.1:${first.port}`)).connection.redis;
  await filled.eval("for n = 1, 20000 do redis.call('SET', 'k' .. n, n) end", 0);
  await filled.save();
  await first.stop();
  const port = await freePort();
  const slow = ['--key-load-delay', '2000', '--loading-process-events-interval-bytes', '1024'];
  const child = spawn('redis-server', ['--port', String(port), '--dir', folder, ...slow]);
  stops.push(async () => void child.kill('SIGKILL'));
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(await failure(openStore({ url: `redis://127.0.0.1:${port}` }))).toMatchObject({
    ...{ code: 'OOMTUNE_REDIS_REFUSED', remedy: 'Try again in a moment.' },
    message: 'Redis refused a command: it still loads its data.',
  });
});

test('a Redis that is stopped answers nobody: the first try gives up', async () => {
  const { port, child } = await redis();
  child.kill('SIGSTOP');
  const error = await failure(openStore({ url: `redis://127.0.0.1:${port}` }));
  child.kill('SIGCONT');
  expect(error.message).toContain('no answer within 5 s');
});

test('who is interrupted waits neither for the first answer of a stopped Redis nor long for the last', async () => {
  const { port, child } = await redis();
  const url = `redis://127.0.0.1:${port}`;
  const opened = await store(url);
  const interrupted = new AbortController();
  const lease = await opened.leasing.acquire({
    ...{ owner: 'j-foreground', devices: [gpu(0)], count: 1, bytes: null, share: false, onWait: () => {} },
    foreground: { verb: 'run', name: 'mine' },
    signal: interrupted.signal,
  });
  child.kill('SIGSTOP');
  const reason = new DOMException('Interrupted.', 'AbortError');
  const begun = Date.now();
  const first = failure(openStore({ url, signal: interrupted.signal }));
  const last = lease.release();
  setTimeout(() => interrupted.abort(reason), 200);
  expect(await first).toBe(reason);
  await last;
  expect(Date.now() - begun).toBeLessThan(2000);
  child.kill('SIGCONT');
  await until(async () => (await opened.leasing.list()).length === 0);
});

test('who is connected waits through a pause of 20 s, says so once, and goes on', async () => {
  const { port, child } = await redis();
  const told: string[] = [];
  const opened = await store(`redis://127.0.0.1:${port}`, told);
  await opened.connection.redis.set('n', 1);
  child.kill('SIGSTOP');
  const read = opened.connection.redis.incr('n');
  await new Promise((resolve) => setTimeout(resolve, 20_000));
  expect(told).toEqual(['lost']);
  child.kill('SIGCONT');
  expect(await read).toBeGreaterThanOrEqual(2);
  await until(() => told.at(-1) === 'back');
});

test('listeners hear again after the connection was cut', async () => {
  const { port } = await redis();
  const opened = await store(`redis://127.0.0.1:${port}`);
  const heard: string[] = [];
  await opened.events.listen((wake, job) => heard.push(`${wake} ${job}`));
  await opened.events.wake('submit', 'j-first');
  await until(() => heard.length === 1);
  await opened.connection.redis.client('KILL', 'TYPE', 'pubsub');
  await until(async () => {
    await opened.events.wake('cancel', 'j-second');
    return heard.includes('cancel j-second');
  });
  await opened.connection.redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no').catch(() => {});
  expect(await opened.connection.redis.ping()).toBe('PONG');
});

test('OOMTUNE_PREFIX changes the word, and a word that would break the keys is refused', async () => {
  const { port } = await redis();
  process.env.OOMTUNE_PREFIX = 'team-a';
  const opened = await store(`redis://127.0.0.1:${port}`);
  expect(opened.keys.config('k')).toBe('{team-a}:config:k');
  process.env.OOMTUNE_PREFIX = 'a}b';
  expect((await failure(openStore({ url: `redis://127.0.0.1:${port}` }))).code).toBe('OOMTUNE_USAGE');
  delete process.env.OOMTUNE_PREFIX;
});
