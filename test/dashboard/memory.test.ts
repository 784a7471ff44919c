import { execFileSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { MemorySample } from '../../src/contract/verbs.js';
import { Ring } from '../../src/daemon/observe/watch.js';
import { hostName } from '../../src/store/index.js';
import { Host, sleep } from '../daemon/host.js';
import { ROOT, until } from '../store/home.js';
import { Dashboard } from './server.js';

const host = new Host();
const settings = { cpuLanes: 2, httpPort: null };
const threads = { OMP_NUM_THREADS: '1' };
const BUDGET = 34 * 1024 ** 2;

beforeAll(async () => {
  await host.start(settings, threads);
});
afterAll(() => host.close());

/** What a page of this daemon is sent when it is opened. */
async function firstSight(dashboard: Dashboard, id: string): Promise<MemorySample[]> {
  const stream = await dashboard.follow(`/api/stream?job=${id}`);
  try {
    const { samples } = await stream.until('memory', ({ full, samples: some }) => {
      return full === true && (some as MemorySample[]).length > 0;
    });
    return samples as MemorySample[];
  } finally {
    stream.close();
  }
}

const launchesOf = (samples: readonly MemorySample[]): number[] => [...new Set(samples.map(({ launch }) => launch))];

it('outlives a daemon that is killed, is drawn by the next one, and by that of another host', async () => {
  const store = await host.store();
  const searched = await host.submit(
    ['/usr/bin/python3', `${ROOT}test/fixtures/worker/tiny.py`],
    { name: 'searched', budget: '34MiB', tune: true, preset: 'auto' },
    { ...process.env, ...threads },
  );
  const hold = 'x=$(head -c 3000000 /dev/zero | tr "\\\\0" x); touch held; while [ ! -e stop ]; do sleep 0.2; done';
  const running = await host.shell(hold, { budget: '34MiB' });
  await host.ended(searched, 90);
  await until(() => existsSync(join(host.work, 'held')));
  // What has ended is written down at the next look; of what runs the daemon writes now and then
  const seen = async (): Promise<number> => (await store.memory.get(searched))?.samples.length ?? 0;
  let last = -1;
  await until(async () => {
    const still = last === (await seen());
    last = await seen();
    await sleep(1000);
    return still && last > 0;
  });
  expect(launchesOf((await store.memory.get(searched))?.samples ?? []).length).toBeGreaterThan(1);
  await until(async () => ((await store.memory.get(running))?.samples.length ?? 0) >= 4);

  await host.kill();
  const [before, ranBefore] = [await store.memory.get(searched), await store.memory.get(running)];
  await host.start(settings, threads);

  // Another host has its own name, and the same Redis
  const home = hostName();
  process.env.OOMTUNE_HOST = 'elsewhere';
  const elsewhere = await Dashboard.start();
  try {
    expect(await firstSight(elsewhere, searched)).toEqual(before?.samples);
    expect((await elsewhere.ask(`/api/jobs/${searched}`)).json.budget_bytes).toBe(BUDGET);
    expect((await firstSight(elsewhere, running)).slice(0, ranBefore?.samples.length)).toEqual(ranBefore?.samples);
    // It follows what the other host writes down
    const stream = await elsewhere.follow(`/api/stream?job=${running}`);
    const count = ranBefore?.samples.length ?? 0;
    await stream.until('memory', ({ samples }) => (samples as MemorySample[]).length > count);
    stream.close();
  } finally {
    await elsewhere.close();
    delete process.env.OOMTUNE_HOST;
  }
  expect(hostName()).toBe(home);

  // The daemon that came after goes on with what the one before had seen
  await until(async () => ((await store.memory.get(running))?.samples.length ?? 0) > (ranBefore?.samples.length ?? 0));
  const after = (await store.memory.get(running))?.samples ?? [];
  expect(after.slice(0, ranBefore?.samples.length)).toEqual(ranBefore?.samples);
  expect(Math.max(...after.map(({ bytes }) => bytes))).toBeGreaterThan(3_000_000);

  const told = (id: string, ...more: string[]): string =>
    execFileSync(process.execPath, [join(ROOT, 'bin', 'oomtune.js'), 'explain', id, ...more], { encoding: 'utf8' });
  expect(told(searched)).toMatch(
    /Memory over time, up to the budget of 34 MiB:\n {2}launch 1, the run .*[▁-█]+.* peak /,
  );
  expect(told(running)).toMatch(/launch 1, the run +[▁-█ ]+ peak .*, seen for /);
  expect(JSON.parse(told(searched, '--json')).memory_over_time).toEqual({
    budget_bytes: BUDGET,
    samples: before?.samples,
  });
  await host.stop({ kill: true });
  await host.ended(running);
  expect(((await store.memory.get(running))?.samples.length ?? 0) >= after.length).toBe(true);
});

it('begins anew with a retry, and is forgotten with its job', async () => {
  const store = await host.store();
  await host.start(settings, threads);
  const seen = join(host.work, 'seen');
  const id = await host.shell('while [ ! -e seen ]; do sleep 0.1; done');
  /** It lasts until it was looked at, however busy the machine is. */
  const lookedAt = async () => {
    await until(async () => (await store.memory.get(id)) !== null);
    writeFileSync(seen, '');
    await host.state(id, 'succeeded');
  };
  await lookedAt();
  const [first] = (await store.memory.get(id))?.samples ?? [];
  rmSync(seen);
  await store.jobs.retry(id);
  expect((await store.memory.get(id))?.samples[0]).not.toEqual(first);
  await lookedAt();
  expect((await store.memory.get(id))?.samples[0]?.at).toBeGreaterThan(first?.at ?? 0);
  expect(await store.connection.redis.ttl(store.keys.memory(id))).toBeGreaterThan(3600);
  await store.jobs.prune(0);
  expect(await store.connection.redis.exists(store.keys.memory(id))).toBe(0);
});

it('is set aside where it cannot be trusted', async () => {
  const store = await host.store();
  const key = store.keys.memory('j-broken1');
  const good = { schema: 1, epoch: 1, budget_bytes: null, every: 1, begin: 5, samples: [[0, 1, 7]] };
  await store.connection.redis.set(key, JSON.stringify(good));
  expect((await store.memory.get('j-broken1'))?.samples).toEqual([{ at: 5, launch: 1, bytes: 7 }]);
  for (const text of ['', '{', 'null', '[]', JSON.stringify({ ...good, samples: [[0, 1, -7]] })]) {
    await store.connection.redis.set(key, text);
    expect(await store.memory.get('j-broken1'), text).toBeNull();
  }
  const endless = new Array(6000).fill([1, 1, 1]);
  await store.connection.redis.set(key, JSON.stringify({ ...good, samples: endless }));
  expect(await store.memory.get('j-broken1')).toBeNull();
});

it('is thinned out evenly by two daemons as by one', () => {
  const sample = (n: number): MemorySample => ({ at: n * 250, launch: 1, bytes: n % 7 });
  const whole = new Ring(64);
  for (let n = 0; n < 1000; n += 1) whole.add(sample(n));
  const first = new Ring(64);
  for (let n = 0; n < 500; n += 1) first.add(sample(n));
  const second = new Ring(64, first);
  for (let n = 500; n < 1000; n += 1) second.add(sample(n));
  expect(second.samples.length).toBeLessThanOrEqual(64);
  expect(second.every).toBe(whole.every);
  expect(second.samples[0]).toEqual(whole.samples[0]);
  expect(Math.max(...second.samples.map(({ bytes }) => bytes))).toBe(6);
});
