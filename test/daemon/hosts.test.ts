import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { cancelJob } from '../../src/daemon/index.js';
import { freePort, until } from '../store/home.js';
import { Host, sleep } from './host.js';

/**
 * Two machines as far as the network goes: two network namespaces, each joined by a cable of its own to the one with
 * Redis in it. Pulling a cable is setting its link down: packets vanish, and nobody is told.
 */
const unable = ((): string | null => {
  if (process.getuid?.() !== 0) return 'not root';
  const made = spawnSync('ip', ['netns', 'add', `oomtune-try${process.pid}`]);
  spawnSync('ip', ['netns', 'del', `oomtune-try${process.pid}`]);
  return made.status === 0 ? null : `ip netns add failed: ${made.stderr?.toString().trim() || made.error?.message}`;
})();
if (unable !== null)
  process.stderr.write(`SKIPPED: two hosts in two network namespaces need root and iproute2 (${unable})\n`);

describe.skipIf(unable !== null)('two hosts on one Redis', () => {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-net-'));
  const ip = (...args: string[]) => execFileSync('ip', args);
  // Of this run alone: another may be under way on the same machine
  const names = [`oomtune-a${process.pid}`, `oomtune-b${process.pid}`] as const;
  const links = [`oa${process.pid}`, `ob${process.pid}`] as const;
  const net = `10.${200 + (process.pid % 50)}`;
  const subnet = (at: number) => `${net}.${(Math.floor(process.pid / 50) % 100) * 2 + at}`;
  let port = 0;
  let redis: ReturnType<typeof spawn>;
  let host: Host;
  let daemons: Record<string, ReturnType<typeof spawn>> = {};

  beforeAll(async () => {
    port = await freePort();
    for (const name of names) spawnSync('ip', ['netns', 'del', name]);
    for (const [at, name] of names.entries()) {
      ip('netns', 'add', name);
      ip('link', 'add', links[at] as string, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name);
      ip('addr', 'add', `${subnet(at)}.1/24`, 'dev', links[at] as string);
      ip('link', 'set', links[at] as string, 'up');
      ip('-n', name, 'addr', 'add', `${subnet(at)}.2/24`, 'dev', 'eth0');
      ip('-n', name, 'link', 'set', 'eth0', 'up');
      ip('-n', name, 'link', 'set', 'lo', 'up');
      ip('-n', name, 'route', 'add', 'default', 'via', `${subnet(at)}.1`);
    }
    const args = [
      '--port',
      String(port),
      '--bind',
      '127.0.0.1',
      `${subnet(0)}.1`,
      `${subnet(1)}.1`,
      '--requirepass',
      'cable',
      '--save',
      '',
      '--dir',
      folder,
    ];
    redis = spawn('redis-server', args, { stdio: 'pipe' });
    await new Promise<void>((resolve) =>
      redis.stdout?.on('data', (data: Buffer) => data.includes('Ready to accept') && resolve()),
    );
  });
  afterAll(() => {
    redis?.kill('SIGKILL');
    for (const name of names) spawnSync('ip', ['netns', 'del', name]);
    rmSync(folder, { recursive: true, force: true });
  });
  afterEach(async () => {
    plug(0);
    plug(1);
    for (const daemon of Object.values(daemons)) await host.kill(daemon);
    daemons = {};
    await (await host.store()).connection.redis.flushall();
    await host.close();
  });

  const unplug = (at: number) => ip('link', 'set', links[at] as string, 'down');
  const plug = (at: number) => ip('link', 'set', links[at] as string, 'up');

  /** Both share a home folder, as hosts of a cluster do; each has its own name. */
  async function start(at: number, settings = {}): Promise<void> {
    const env = { OOMTUNE_REDIS_URL: `redis://:cable@${subnet(at)}.1:${port}`, OOMTUNE_HOST: names[at] };
    const times = { heartbeatMs: 1000, sweepMs: 1000, lockMs: 5000, renewMs: 1000, ...settings };
    const prefix = ['ip', 'netns', 'exec', names[at] as string];
    daemons[names[at] as string] = await host.start({ allowInsecureRedis: true, cpuLanes: 1, ...times }, env, prefix);
  }

  const both = async (): Promise<void> => {
    host = new Host(`redis://:cable@127.0.0.1:${port}`);
    await start(0);
    await start(1);
  };

  /** Heartbeats last 20 s. */
  const gone = async (at: number) =>
    until(async () => !(await (await host.store()).hosts.isAlive(names[at] as string)), 40);

  test('jobs go to both, and to the one that is named', async () => {
    await both();
    const ids: string[] = [];
    for (let n = 0; n < 6; n += 1) ids.push(await host.shell('sleep 0.7'));
    const named = await host.shell('true', { host: names[1] });
    const nobody = await host.shell('true', { host: 'oomtune-c' });
    const jobs = [];
    for (const id of ids) jobs.push(await host.state(id, 'succeeded', 30));
    expect(new Set(jobs.map((job) => job.host))).toEqual(new Set(names));
    expect((await host.state(named, 'succeeded')).host).toBe(names[1]);
    await until(async () => (await host.job(nobody)).reason?.startsWith('no daemon runs on oomtune-c') === true);
    expect((await host.job(nobody)).reason).toContain(`; there are ${names.join(', ')}`);
    expect(ids.map((id) => host.starts(id))).toEqual(ids.map(() => 1));
  });

  test('one is cut off in the middle: what it runs is reported, never run by the other, and recorded when it is back', async () => {
    await both();
    const id = await host.shell('sleep 30; echo end >> ends', { host: null });
    const at = names.indexOf((await host.state(id, 'running')).host as string);
    const other = names[1 - at];
    unplug(at);
    await gone(at);
    await until(async () => (await host.job(id)).reason?.includes('has not been heard') === true);
    expect(await host.job(id)).toMatchObject({ state: 'running', host: names[at] });
    // The other goes on working, and past its lock and the stalled check it still leaves the job alone
    const here = await host.shell('true');
    expect((await host.state(here, 'succeeded', 20)).host).toBe(other);
    await sleep(8000);
    expect(host.starts(id)).toBe(1);
    plug(at);
    await host.state(id, 'succeeded', 60);
    expect(await host.job(id)).toMatchObject({ host: names[at], exit_code: 0, reason: null });
    expect(host.starts(id)).toBe(1);
    expect(host.lines('ends')).toEqual(['end']);
  });

  test('a job that ended while its host was cut off is recorded once it is back', async () => {
    await both();
    const id = await host.shell('sleep 3; echo end >> ends', { host: names[0] });
    await host.state(id, 'running');
    unplug(0);
    await until(() => host.lines('ends').length === 1);
    await gone(0);
    plug(0);
    await host.state(id, 'succeeded', 60);
    expect(host.starts(id)).toBe(1);
  });

  test('what the lost host had taken but not launched is run by the other, and not by the first when it is back', async () => {
    await both();
    const store = await host.store();
    const total = (await store.hosts.list())[0]?.info?.devices.find((device) => device.id === 'cpu')
      ?.total_bytes as number;
    const budget = `${Math.floor(total * 0.6)}B`;
    await host.kill(daemons[names[1]]); // so that the first has it
    await gone(1);
    await host.kill(daemons[names[0]]);
    await start(0, { cpuLanes: 2 });
    const big = await host.shell('sleep 45', { budget, host: names[0] });
    await host.state(big, 'running');
    const id = await host.shell('true', { budget });
    await until(async () => (await host.job(id)).reason?.includes('holds') === true); // taken, waits for its lease
    unplug(0);
    await gone(0);
    await cancelJob(store, big);
    expect((await host.job(big)).state).toBe('running'); // nobody there to end it yet
    await start(1);
    // On one machine both see the same memory: the lease of the lost host still stands, and the job must wait for it
    await until(async () => (await host.job(id)).claimHost === names[1], 40);
    plug(0);
    await host.state(big, 'cancelled', 60);
    const job = await host.state(id, 'succeeded', 60);
    expect(job.host).toBe(names[1]);
    expect(host.starts(id)).toBe(1);
  });

  test('a second daemon of the same name is refused', async () => {
    await both();
    const shared = host;
    const second = new Host(shared.url);
    const env = { OOMTUNE_REDIS_URL: `redis://:cable@127.0.0.1:${port}`, OOMTUNE_HOST: names[0] };
    await expect(second.start({}, env)).rejects.toThrow(/OOMTUNE_DAEMON_RUNNING/);
    process.env.OOMTUNE_HOME = shared.home;
    const known = await (await shared.store()).hosts.list();
    expect(known.find(({ host }) => host === names[0])?.info?.pid).toBe(daemons[names[0]]?.pid);
    await second.close();
    process.env.OOMTUNE_HOME = shared.home;
  });

  test('over the network without TLS a daemon refuses to start unless told', async () => {
    host = new Host(`redis://:cable@127.0.0.1:${port}`);
    await expect(start(0, { allowInsecureRedis: false })).rejects.toThrow(/OOMTUNE_REDIS_UNSAFE/);
  });
});
