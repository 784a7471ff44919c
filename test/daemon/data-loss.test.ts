import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, cpSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cancelJob } from '../../src/daemon/index.js';
import { freePort, script, until } from '../store/home.js';
import { Host, sleep } from './host.js';

/** Redis loses its data while a daemon runs jobs: what it held is written back, and no memory is promised twice meanwhile. */
let host: Host;
let folder: string;
let port: number;
let server: ChildProcess;

async function startRedis(): Promise<void> {
  server = spawn('redis-server', ['--port', String(port), '--dir', folder, '--save', '', '--appendonly', 'no'], {
    stdio: 'pipe',
  });
  await new Promise<void>((resolve) =>
    server.stdout?.on('data', (data: Buffer) => data.includes('Ready to accept') && resolve()),
  );
}

async function killRedis(): Promise<void> {
  server.kill('SIGKILL');
  await once(server, 'exit');
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'oomtune-redis-'));
  port = await freePort();
  await startRedis();
  host = new Host(`redis://127.0.0.1:${port}`);
});
afterEach(async () => {
  await host.close();
  await killRedis();
  rmSync(folder, { recursive: true, force: true });
});

const cli = (...words: string[]) => execFileSync('redis-cli', ['-p', String(port), ...words], { encoding: 'utf8' });

async function budgetOf(share: number): Promise<string> {
  const [first] = await (await host.store()).hosts.list();
  const total = first?.info?.devices.find((device) => device.id === 'cpu')?.total_bytes as number;
  return `${Math.floor(total * share)}B`;
}

/** Records are written back one after the other: that one is there says nothing of the next. */
async function recordBack(id: string): Promise<void> {
  const { jobs } = await host.store();
  await until(async () => (await jobs.find(id)).is === 'job', 30);
}

/** The record, the lease, status and cancel work again. */
async function backAgain(id: string): Promise<void> {
  const store = await host.store();
  await recordBack(id);
  expect(await host.job(id)).toMatchObject({ state: 'running', claimHost: expect.any(String) });
  await until(async () => (await store.leasing.list()).some(({ owner }) => owner === id), 30);
}

const losses: Record<string, () => Promise<void>> = {
  FLUSHALL: async () => {
    cli('FLUSHALL');
  },
  'killed and started empty': async () => {
    await killRedis();
    rmSync(join(folder, 'dump.rdb'), { force: true }); // it would start with what was saved
    await startRedis();
  },
  'rolled back to before the job was submitted': async () => {
    cli('SHUTDOWN', 'NOSAVE');
    await once(server, 'exit').catch(() => {});
    cpSync(join(folder, 'old.rdb'), join(folder, 'dump.rdb'));
    await startRedis();
  },
};

for (const [name, lose] of Object.entries(losses)) {
  test(`${name}: the job goes on, its record and lease are back within 30 s, and it can be cancelled`, async () => {
    await host.start();
    cli('SAVE');
    copyFileSync(join(folder, 'dump.rdb'), join(folder, 'old.rdb'));
    const budget = await budgetOf(0.6);
    const id = await host.shell('sleep 60', { budget });
    await host.state(id, 'running');
    const ends = await host.shell('sleep 5; exit 5', { budget: '64MiB' });
    await host.state(ends, 'running');
    await lose();
    // At once: a second job that would need the same memory
    const second = await host.shell('true', { budget });
    await backAgain(id);
    await recordBack(ends);
    expect(await host.ended(ends)).toMatchObject({ state: 'failed', exit_code: 5 });
    await until(async () => (await host.job(second)).reason?.includes(`${id} holds`) === true);
    expect(host.starts(second)).toBe(0);
    await cancelJob(await host.store(), id);
    await host.state(id, 'cancelled');
    await host.state(second, 'succeeded');
    expect([id, ends, second].map((one) => host.starts(one))).toEqual([1, 1, 1]);
    await until(async () => (await host.leftOver()).length === 0);
  });
}

test('rolled back to before a job of another host was taken: nobody takes it a second time', async () => {
  cli('SAVE'); // so that Redis has a file to begin with
  const id = await host.shell('sleep 12; exit 4');
  cli('SAVE'); // the job is queued, and nobody's
  copyFileSync(join(folder, 'dump.rdb'), join(folder, 'old.rdb'));
  await host.start({ sweepMs: 500 }, { OOMTUNE_HOST: 'host-a' });
  await host.state(id, 'running');
  const other = new Host(host.url);
  try {
    await other.start({ sweepMs: 500 }, { OOMTUNE_HOST: 'host-b' });
    await sleep(1500); // each has heard of the other
    await losses['rolled back to before the job was submitted']?.();
    expect(await host.ended(id, 40)).toMatchObject({ state: 'failed', exit_code: 4, host: 'host-a' });
    expect(host.starts(id)).toBe(1);
    expect(other.processes()).toEqual([]);
  } finally {
    process.env.OOMTUNE_HOST = 'host-b';
    await other.close();
    delete process.env.OOMTUNE_HOST;
    process.env.OOMTUNE_HOME = host.home;
  }
});

/** The job is queued in the copy, and has been run since. */
async function ranSince(start: () => Promise<unknown>): Promise<string> {
  cli('SAVE'); // so that Redis has a file to begin with
  const id = await host.shell('exit 4');
  cli('SAVE');
  copyFileSync(join(folder, 'dump.rdb'), join(folder, 'old.rdb'));
  await start();
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 4 });
  return id;
}

test('rolled back to before a job was run: it is not run again, and how it ended is written back', async () => {
  const id = await ranSince(() => host.start({ sweepMs: 500 }));
  await losses['rolled back to before the job was submitted']?.();
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 4, claimHost: null });
  await host.state(await host.shell('true'), 'succeeded'); // jobs are taken again
  expect(host.starts(id)).toBe(1);
  await until(async () => (await host.leftOver()).length === 0);
});

test('the same while the daemon is away', async () => {
  const id = await ranSince(() => host.start({ sweepMs: 500 }));
  await host.kill();
  await losses['rolled back to before the job was submitted']?.();
  expect((await host.job(id)).state).toBe('queued');
  await host.start({ sweepMs: 500 });
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 4 });
  expect(host.starts(id)).toBe(1);
});

test.each([
  ['the same where another host would take it', false],
  ['the same where that host finds Redis again before the one that ran it', true],
])('%s', async (_, late) => {
  const id = await ranSince(() => host.start({ sweepMs: 500, cpuLanes: 1 }, { OOMTUNE_HOST: 'host-a' }));
  const long = await host.shell('sleep 20'); // host-a has no lane for it any more
  await host.state(long, 'running');
  const other = new Host(host.url);
  try {
    await other.start({ sweepMs: 500 }, { OOMTUNE_HOST: 'host-b' });
    await sleep(1500); // each has heard of the other
    if (late) host.daemon?.kill('SIGSTOP');
    await losses['rolled back to before the job was submitted']?.();
    if (late) {
      await sleep(6000);
      expect((await host.job(id)).state).toBe('queued');
      host.daemon?.kill('SIGCONT');
    }
    expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 4, host: 'host-a' });
    await backAgain(long);
    await host.state(long, 'succeeded', 40);
    expect(host.starts(id)).toBe(1);
  } finally {
    process.env.OOMTUNE_HOST = 'host-b';
    await other.close();
    delete process.env.OOMTUNE_HOST;
    process.env.OOMTUNE_HOME = host.home;
  }
});

test('a daemon that is started after the loss takes what others put into their queues', async () => {
  await host.start({ sweepMs: 500, cpuLanes: 1 }, { OOMTUNE_HOST: 'host-a' });
  await host.state(await host.shell('true'), 'succeeded'); // host-a knows the queue
  cli('FLUSHALL');
  const long = await host.shell('sleep 20');
  await host.state(long, 'running'); // host-a has no other lane
  const id = await host.shell('true');
  const other = new Host(host.url);
  try {
    await other.start({ sweepMs: 500 }, { OOMTUNE_HOST: 'host-b' });
    expect(await host.ended(id, 15)).toMatchObject({ state: 'succeeded', host: 'host-b' });
    await cancelJob(await host.store(), long);
    await host.state(long, 'cancelled');
  } finally {
    process.env.OOMTUNE_HOST = 'host-b';
    await other.close();
    delete process.env.OOMTUNE_HOST;
    process.env.OOMTUNE_HOME = host.home;
  }
});

test('rolled back to before the launch: the job is not launched a second time', async () => {
  await host.start();
  const id = await host.shell('sleep 8; exit 6', { after: [] });
  await host.state(id, 'running');
  const { redis } = (await host.store()).connection;
  const { keys } = await host.store();
  // As it was just submitted: an entry in its queue, and nobody's
  await redis.hdel(keys.job(id), 'claim', 'claim_host');
  await redis.hset(keys.job(id), { state: 'queued', launches: '[]', host: 'null', started_at: 'null' });
  await redis.sadd(keys.pending, id);
  await (await host.store()).events.wake('submit', id);
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 6 });
  expect(host.starts(id)).toBe(1);
  await until(async () => (await host.leftOver()).length === 0);
});

test('the daemon killed as well, and Redis empty when the next one starts: it adopts what runs', async () => {
  await host.start();
  const budget = await budgetOf(0.6);
  const id = await host.shell('sleep 12; exit 7', { budget });
  await host.state(id, 'running');
  await host.kill();
  cli('FLUSHALL');
  await host.start();
  expect((await host.job(id)).state).toBe('running');
  const second = await host.shell('true', { budget });
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 7 });
  await host.state(second, 'succeeded');
  const lines = host.lines('starts').map((line) => line.split(' ')[0]);
  expect(lines).toEqual([id, second]);
  await until(async () => (await host.leftOver()).length === 0);
});

test('a command in the foreground asks for what a job holds, right after the loss: it waits', async () => {
  await host.start();
  const budget = Number((await budgetOf(0.6)).replace('B', ''));
  const id = await host.shell('sleep 30', { budget: `${budget}B` });
  await host.state(id, 'running');
  const [cpu] = ((await (await host.store()).hosts.list())[0]?.info?.devices ?? []).filter((one) => one.id === 'cpu');
  const [lease] = await (await host.store()).leasing.list();
  const device = { ...cpu, uuid: lease?.devices[0]?.uuid, used_bytes: 0, processes: [] };
  cli('FLUSHALL');
  const asks = script(
    `const { openStore } = await import(DIST + '/store/index.js');
     const store = await openStore({ url: process.env.OOMTUNE_REDIS_URL, onOutage: () => {} });
     const stop = new AbortController();
     const lease = await store.leasing.acquire({ owner: 'j-front222', devices: [${JSON.stringify(device)}], count: 1, bytes: ${budget},
       share: false, signal: stop.signal, onWait: (why) => { say(why); stop.abort(new Error('enough')); } }).catch((error) => say(error.message));
     if (lease) say('granted');
     await store.close();`,
    { OOMTUNE_REDIS_URL: `redis://127.0.0.1:${port}` },
  );
  expect(await asks.next()).toContain(`${id} holds`);
  await asks.lines;
});

test("something else in the place of a job's record: it is kept aside, the job ends with its own status", async () => {
  await host.start();
  const id = await host.shell('sleep 6; exit 8');
  await host.state(id, 'running');
  const { keys, connection } = await host.store();
  await connection.redis.set(keys.job(id), 'something else');
  await until(async () => (await (await host.store()).jobs.find(id)).is === 'job', 30);
  expect((await host.job(id)).state).toBe('running');
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 8 });
  expect(host.starts(id)).toBe(1);
  const aside = await connection.redis.keys(`${keys.prefix}:aside:${id}:*`);
  expect(await connection.redis.get(aside[0] as string)).toBe('something else');
  await until(async () => (await host.leftOver()).length === 0);
});

test('the record deleted while the daemon is away: the next one writes it back and goes on', async () => {
  await host.start();
  const id = await host.shell('sleep 10; exit 9');
  await host.state(id, 'running');
  await host.kill();
  const { keys, connection } = await host.store();
  await connection.redis.del(keys.job(id));
  await host.start();
  await sleep(500);
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 9 });
  expect(host.starts(id)).toBe(1);
});

test('the record gone when the daemon had looked and not adopted the job yet: it is written back', async () => {
  await host.start();
  const id = await host.shell('sleep 8; exit 9');
  await host.state(id, 'running');
  await host.kill();
  const { keys, connection } = await host.store();
  await connection.redis.del(keys.job(id));
  const backup = join(host.home, 'daemon', 'held', `${id}.json`);
  renameSync(backup, join(host.home, 'aside'));
  await host.start({ sweepMs: 500 }); // it has nothing to write back
  renameSync(join(host.home, 'aside'), backup);
  await until(async () => (await (await host.store()).jobs.find(id)).is === 'job');
  expect(await host.ended(id)).toMatchObject({ state: 'failed', exit_code: 9 });
  expect(host.starts(id)).toBe(1);
  await until(async () => (await host.leftOver()).length === 0);
});
