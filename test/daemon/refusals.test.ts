import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cancelJob, withSilence } from '../../src/daemon/index.js';
import { labelFor } from '../../src/daemon/routing.js';
import { hostName } from '../../src/store/index.js';
import { startRedis, until } from '../store/home.js';
import { Host, sleep } from './host.js';

/**
 * Redis answers, but with errors, while a daemon runs a job. Its client is the user `daemon`, so that rights can be taken
 * from it; the test's own client and `admin` may do all.
 */
let redis: Awaited<ReturnType<typeof startRedis>>;
let host: Host;
let told = '';
/** Where Redis would save its data. */
let folder = '';
const admin = (...command: string[]): string =>
  execFileSync(
    'redis-cli',
    ['-p', String(redis.port), ...(told === '' ? [] : ['-a', told, '--no-auth-warning']), ...command],
    {
      encoding: 'utf8',
    },
  );

beforeEach(async () => {
  told = '';
  folder = mkdtempSync(join(tmpdir(), 'oomtune-redis-'));
  redis = await startRedis(['--lua-time-limit', '200', '--dir', folder]);
  admin('ACL', 'SETUSER', 'daemon', 'on', '>secret', '~*', '&*', '+@all');
  host = new Host(`redis://127.0.0.1:${redis.port}`);
});
afterEach(async () => {
  await host.close();
  await redis.stop();
  rmSync(folder, { recursive: true, force: true });
});

const TIMES = { cancelLookMs: 200, sweepMs: 500, heartbeatMs: 500, renewMs: 500 };
const start = () => host.start(TIMES, { OOMTUNE_REDIS_URL: `redis://daemon:secret@127.0.0.1:${redis.port}` });
const rights = (...rules: string[]) => admin('ACL', 'SETUSER', 'daemon', ...rules);

/** A job that is long over when the trouble ends, and one that is not: each ends with a status of its own. */
async function two(): Promise<{ short: string; long: string }> {
  const short = await host.shell('sleep 3; exit 3');
  const long = await host.shell('sleep 9; exit 7');
  await host.state(short, 'running');
  await host.state(long, 'running');
  return { short, long };
}

async function bothEnded({ short, long }: { short: string; long: string }): Promise<void> {
  for (const [id, code] of [
    [short, 3],
    [long, 7],
  ] as const) {
    expect(await host.ended(id, 40)).toMatchObject({
      state: 'failed',
      exit_code: code,
      failure: { class: 'user_error' },
    });
    expect(host.starts(id)).toBe(1);
  }
  await until(async () => (await host.leftOver()).length === 0, 30).catch(async () =>
    expect(await host.leftOver()).toEqual([]),
  );
}

test('a queue entry that Redis refused halfway is made anew', async () => {
  await start();
  rights('-hmget'); // BullMQ writes the entry, and then asks by it whether its queue is paused
  const id = await host.shell('exit 3');
  const { keys, connection } = await host.store();
  const label = labelFor(await host.job(id));
  await until(async () => (await connection.redis.exists(`${keys.prefix}:${label}:${id}-1`)) === 1);
  rights('+@all');
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 3, epoch: 2 });
  expect(host.starts(id)).toBe(1);
  await until(async () => (await host.leftOver()).length === 0);
  expect(await connection.redis.keys(`${keys.prefix}:${label}:${id}*`)).toEqual([]);
});

for (const denied of [
  ['-hmget', '-hgetall'],
  ['-hget', '-hset', '-zrange', '-set'],
  ['-evalsha', '-eval', '-evalsha_ro'],
  ['-@all', '+info', '+ping'],
]) {
  test(`denied for five seconds (${denied.join(' ')}): what runs goes on and ends with its own status`, async () => {
    await start();
    const jobs = await two();
    rights(...denied);
    await sleep(5000);
    expect(host.processes().length).toBeGreaterThan(0); // of the long one: nobody ended it
    rights('+@all');
    await bothEnded(jobs);
    await host.state(await host.shell('true'), 'succeeded');
  });
}

test("another tenant's slow script (BUSY): what runs goes on and ends with its own status", async () => {
  await start();
  const jobs = await two();
  const script = 'local t = redis.call("TIME")[1] while redis.call("TIME")[1] - t < 5 do end';
  admin('EVAL', script, '0');
  await bothEnded(jobs);
});

test('a password changed, and given back: what runs goes on and ends with its own status', async () => {
  await start();
  const jobs = await two();
  rights('resetpass', '>changed');
  admin('CLIENT', 'KILL', 'USER', 'daemon');
  await sleep(5000);
  expect(host.daemon?.exitCode).toBeNull();
  rights('resetpass', '>secret');
  await bothEnded(jobs);
});

test('CONFIG SET requirepass, for a daemon without a password: what runs goes on', async () => {
  await host.start(TIMES);
  const jobs = await two();
  admin('CONFIG', 'SET', 'requirepass', 'word');
  told = 'word';
  admin('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await sleep(5000);
  admin('CONFIG', 'SET', 'requirepass', '');
  told = '';
  await bothEnded(jobs);
});

test('full (OOM): what runs goes on and ends with its own status', async () => {
  await start();
  const jobs = await two();
  admin('CONFIG', 'SET', 'maxmemory', '1');
  await sleep(5000);
  admin('CONFIG', 'SET', 'maxmemory', '0');
  await bothEnded(jobs);
});

const reasonOf = async (id: string) => (await withSilence(await host.store(), [await host.job(id)]))[0]?.reason;

test('full (OOM), with its heartbeat over: a job that waits says what Redis refuses and what helps, until it is mended', async () => {
  await start();
  await host.state(await host.shell('sleep 30', { device: 'cpu', exclusive: true }), 'running');
  const id = await host.shell('true', { device: 'cuda' });
  await until(async () => (await reasonOf(id))?.startsWith('no host has a GPU') === true);
  admin('CONFIG', 'SET', 'maxmemory', '1');
  const { connection, keys } = await host.store();
  await connection.redis.del(keys.host(hostName()));
  const full = 'Redis takes no writes: it is full (maxmemory). Raise its maxmemory, or use another Redis';
  expect(await reasonOf(id)).toBe(full);
  for (const job of await withSilence(await host.store(), await (await host.store()).jobs.list()))
    expect(job.reason).toBe(full); // the one that runs is not heard either
  admin('CONFIG', 'SET', 'maxmemory', '0');
  await until(async () => /^no host has a GPU; there are \S+$/.test((await reasonOf(id)) ?? ''));
});

test('unable to save (MISCONF): a job that waits says so', async () => {
  await start();
  const id = await host.shell('true', { device: 'cuda' });
  await until(async () => (await reasonOf(id))?.startsWith('no host has a GPU') === true);
  rmSync(folder, { recursive: true });
  admin('CONFIG', 'SET', 'save', '3600 1');
  admin('BGSAVE');
  await until(async () =>
    /^Redis takes no writes: it cannot save its data\. Look at its log/.test((await reasonOf(id)) ?? ''),
  );
  admin('CONFIG', 'SET', 'save', '');
  await until(async () => (await reasonOf(id))?.startsWith('no host has a GPU') === true);
});

test('a job that waits to be started while Redis refuses is started when it does not', async () => {
  await start();
  rights('-evalsha', '-eval');
  const id = await host.shell('true');
  await sleep(2500);
  expect((await host.job(id)).state).toBe('queued');
  rights('+@all');
  await host.state(id, 'succeeded', 30);
  expect(host.starts(id)).toBe(1);
  await until(async () => (await host.leftOver()).length === 0, 30);
});

test('a cancel that is asked for while Redis refuses is followed when it does not', async () => {
  await start();
  const id = await host.shell('sleep 60');
  await host.state(id, 'running');
  rights('-hmget', '-hgetall', '-evalsha', '-eval');
  await cancelJob(await host.store(), id);
  await sleep(1000);
  rights('+@all');
  await host.state(id, 'cancelled', 30);
  await until(async () => (await host.leftOver()).length === 0, 30);
});
