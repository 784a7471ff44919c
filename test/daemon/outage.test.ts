import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { redisStatus } from '../../src/store/index.js';
import { freePort, until } from '../store/home.js';
import { Host, sleep } from './host.js';

let host: Host;
const stops: (() => void)[] = [];
afterEach(async () => {
  await host.close();
  for (const stop of stops.splice(0)) stop();
});

/** A Redis of somebody else's, that keeps an append-only file and can be killed and started again. */
async function ownRedis(): Promise<{ url: string; start(): Promise<ChildProcess>; child(): ChildProcess }> {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-redis-'));
  const port = await freePort();
  let child: ChildProcess;
  const start = async () => {
    child = spawn('redis-server', ['--port', String(port), '--dir', folder, '--appendonly', 'yes', '--save', ''], {
      stdio: 'pipe',
    });
    await new Promise<void>((resolve) =>
      child.stdout?.on('data', (data: Buffer) => data.includes('Ready to accept') && resolve()),
    );
    return child;
  };
  await start();
  stops.push(() => {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  });
  return { url: `redis://127.0.0.1:${port}`, start, child: () => child };
}

test('Redis paused for longer than the lock: each running job runs once, and what ends meanwhile is recorded', async () => {
  host = new Host();
  // The lock and the stalled check are shortened, not the pause: the proportion is what counts
  await host.start({ lockMs: 2000, renewMs: 500, heartbeatMs: 500, sweepMs: 500 });
  const short = await host.shell('sleep 3; echo short >> ends');
  const long = await host.shell('sleep 14; echo long >> ends');
  await host.state(short, 'running');
  await host.state(long, 'running');
  const pid = (await redisStatus()).pid as number;
  process.kill(pid, 'SIGSTOP');
  await sleep(10_000);
  process.kill(pid, 'SIGCONT');
  expect(host.lines('ends')).toEqual(['short']);
  await host.state(short, 'succeeded');
  await host.state(long, 'succeeded');
  await sleep(2500); // a stalled check later
  expect([host.starts(short), host.starts(long)]).toEqual([1, 1]);
  expect(host.lines('ends')).toEqual(['short', 'long']);
  expect(await host.leftOver()).toEqual([]);
});

test('Redis paused for 45 s, with the times that daemons really have', async () => {
  host = new Host();
  await host.start();
  const short = await host.shell('sleep 20; echo short >> ends');
  const long = await host.shell('sleep 50; echo long >> ends');
  await host.state(short, 'running');
  await host.state(long, 'running');
  const waiting = await host.shell('true', { after: [long] });
  const pid = (await redisStatus()).pid as number;
  process.kill(pid, 'SIGSTOP');
  await sleep(45_000);
  process.kill(pid, 'SIGCONT');
  await host.state(short, 'succeeded', 30);
  await host.state(long, 'succeeded', 30);
  await host.state(waiting, 'succeeded', 30);
  expect([short, long, waiting].map((id) => host.starts(id))).toEqual([1, 1, 1]);
  expect(host.said).toContain('Redis does not answer: jobs go on');
  await until(async () => (await host.leftOver()).length === 0);
});

test('the embedded Redis killed: the daemon starts it again, nothing submitted is lost, and nothing runs twice', async () => {
  host = new Host();
  await host.start({ cpuLanes: 2 });
  const ids: string[] = [];
  for (let n = 0; n < 8; n += 1) ids.push(await host.shell('sleep 1; echo $OOMTUNE_JOB_ID >> ends'));
  await host.state(ids[0] as string, 'running');
  for (let n = 0; n < 3; n += 1) {
    const { pid } = await redisStatus();
    process.kill(pid as number, 'SIGKILL');
    await until(async () => (await redisStatus()).running && (await redisStatus()).pid !== pid);
    await sleep(300);
  }
  for (const id of ids) await host.state(id, 'succeeded', 40);
  expect(ids.map((id) => host.starts(id))).toEqual(ids.map(() => 1));
  expect(host.lines('ends').sort()).toEqual([...ids].sort());
  await until(async () => (await host.leftOver()).length === 0);
});

test('a Redis by URL killed and gone for a while: jobs go on, end, and are recorded when it is back', async () => {
  const redis = await ownRedis();
  host = new Host(redis.url);
  await host.start();
  const short = await host.shell('sleep 2; echo short >> ends');
  const long = await host.shell('sleep 8; echo long >> ends');
  await host.state(short, 'running');
  await host.state(long, 'running');
  redis.child().kill('SIGKILL');
  await once(redis.child(), 'exit');
  await until(() => host.lines('ends').includes('short'));
  await sleep(1000);
  await redis.start();
  await host.state(short, 'succeeded', 30);
  await host.state(long, 'succeeded', 30);
  await host.state(await host.shell('true'), 'succeeded', 30);
  expect([short, long].map((id) => host.starts(id))).toEqual([1, 1]);
  await until(async () => (await host.leftOver()).length === 0);
});

test('a daemon killed while Redis is away, and both started again: the run is adopted', async () => {
  const redis = await ownRedis();
  host = new Host(redis.url);
  await host.start();
  const id = await host.shell('sleep 4; echo end >> ends');
  await host.state(id, 'running');
  redis.child().kill('SIGKILL');
  await once(redis.child(), 'exit');
  await host.kill();
  await redis.start();
  await host.start();
  await host.state(id, 'succeeded');
  expect(host.starts(id)).toBe(1);
  await until(async () => (await host.leftOver()).length === 0);
});

test('every connection cut, again and again: nothing is lost and nothing runs twice', async () => {
  const redis = await ownRedis();
  host = new Host(redis.url);
  await host.start({ cpuLanes: 2 });
  const port = redis.url.split(':').at(-1) as string;
  const ids: string[] = [];
  for (let n = 0; n < 10; n += 1) {
    ids.push(await host.shell('sleep 0.5'));
    for (const type of ['normal', 'pubsub'])
      execFileSync('redis-cli', ['-p', port, 'CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes']);
    await sleep(150);
  }
  for (const id of ids) await host.state(id, 'succeeded', 40);
  expect(ids.map((id) => host.starts(id))).toEqual(ids.map(() => 1));
  await until(async () => (await host.leftOver()).length === 0);
});

test('a Redis that comes back empty does not end what runs: its record is written anew', async () => {
  const redis = await ownRedis();
  host = new Host(redis.url);
  await host.start();
  const id = await host.shell('sleep 3; echo end >> ends');
  await host.state(id, 'running');
  await (await host.store()).connection.redis.flushall();
  await until(async () => (await (await host.store()).jobs.get(id))?.state === 'succeeded');
  expect(host.starts(id)).toBe(1);
  expect((await host.job(id)).command.join(' ')).toContain('sleep 3');
});
