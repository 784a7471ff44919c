import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { JobOptions } from '../../src/contract/options.js';
import { editJob } from '../../src/daemon/index.js';
import { failure, until } from '../store/home.js';
import { Host } from './host.js';

/** Owners are made up here, as the records of a daemon for several users hold them; queues, leases and processes are real. */
const RULES = join(mkdtempSync(join(tmpdir(), 'oomtune-share-')), 'fair-share.yaml');
writeFileSync(RULES, 'half_life: 1h\nlimits: {queued: 12}\nusers: {carol: {gpus: 1}, dave: {queued: 2}}\n');
process.env.OOMTUNE_FAIR_SHARE = RULES;

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const H200 = 'NVIDIA H200';
const start = (gpus: number) =>
  host.start({ gpus: Array(gpus).fill(H200), leaseTimes: { lookMs: 200 } }, { OOMTUNE_FAIR_SHARE: RULES });

/** Notes whose it is when it begins. */
const send = (owner: string, seconds: number, changes: Partial<JobOptions> = {}): Promise<string> => {
  host.owner = owner;
  return host.shell(`echo ${owner} >> began; sleep ${seconds}`, { device: null, budget: null, ...changes });
};

test('a single job goes before the many of somebody who has used more, and status says so', async () => {
  await start(2);
  const many: string[] = [];
  for (let n = 0; n < 6; n += 1) many.push(await send('alice', [3, 6][n] ?? 0.2));
  await until(() => host.lines('began').length === 2);
  const bob = await send('bob', 0.2);
  const waits = many[2] as string;
  await until(async () => (await host.job(waits)).reason?.includes(`bob has used less lately (${bob})`) ?? false);
  for (const id of [bob, ...many]) await host.state(id, 'succeeded');
  expect(host.lines('began').indexOf('bob')).toBe(2);
  const used = await (await host.store()).usage.list();
  expect(used.get('alice')).toBeGreaterThan(6);
  expect(used.get('bob')).toBeLessThan(3);
});

test('queued together, several people have the devices by turns; priorities order only their own jobs', async () => {
  const jobs: string[] = [];
  for (let n = 0; n < 4; n += 1) jobs.push(await send('alice', 0.1, { priority: 1_000_000 }));
  for (let n = 0; n < 2; n += 1) jobs.push(await send('bob', 0.1));
  await start(1);
  for (const id of jobs) await host.state(id, 'succeeded');
  expect(
    host
      .lines('began')
      .slice(0, 4)
      .filter((owner) => owner === 'bob'),
  ).toHaveLength(2);
});

test('a priority that an admin gives goes before everything', async () => {
  await start(1);
  const first = await send('alice', 2);
  await host.state(first, 'running');
  const jobs = [await send('bob', 0.1), await send('zoe', 0.1), await send('alice', 0.1)];
  await editJob(await host.store(), jobs[2] as string, { priority: 1 }, true);
  for (const id of jobs) await host.state(id, 'succeeded');
  expect(host.lines('began').slice(0, 2)).toEqual(['alice', 'alice']);
});

test('a user has no more GPUs at a time than allowed, and the others are for everybody else', async () => {
  await start(3);
  const carols = [await send('carol', 2), await send('carol', 0.1)];
  await host.state(carols[0] as string, 'running');
  await until(async () => (await host.job(carols[1] as string)).reason?.startsWith('waits: ') ?? false);
  expect((await host.job(carols[1] as string)).reason).toBe(
    'waits: 1 of the 1 GPU that carol may have at a time is in use',
  );
  await host.state(await send('alice', 0.1, { gpus: 2 }), 'succeeded');
  expect((await host.job(carols[0] as string)).state).toBe('running');
  for (const id of carols) await host.state(id, 'succeeded');
  expect(await failure(send('carol', 0.1, { gpus: 2 }))).toMatchObject({ code: 'OOMTUNE_LIMIT' });
});

test('a user has no more jobs waiting than allowed, and a refused submission leaves nothing behind', async () => {
  const store = await host.store();
  await send('dave', 0);
  await send('dave', 0);
  expect(await failure(send('dave', 0))).toMatchObject({
    code: 'OOMTUNE_LIMIT',
    message: 'dave may have 2 jobs that wait, and has them already.',
  });
  await send('alice', 0);
  // All at once: none slips through between a look and its step
  const sent = await Promise.allSettled(Array.from({ length: 20 }, () => send('alice', 0)));
  expect(sent.filter(({ status }) => status === 'fulfilled')).toHaveLength(11);
  expect((await store.jobs.byOwner()).get('alice')).toEqual({ waiting: 12, working: 0 });
  expect((await store.jobs.counts()).live).toBe(14);
});

test('a daemon does not start on a file that cannot be used, and says what is wrong with it', async () => {
  const wrong = `${RULES}.wrong`;
  writeFileSync(wrong, 'half_life: 24h\nlimits: {gpus: many}\n');
  const start = host.start({}, { OOMTUNE_FAIR_SHARE: wrong });
  await expect(start).rejects.toThrow(/OOMTUNE_USAGE.*fair-share\.yaml\.wrong cannot be used: limits\.gpus/);
});

test('what was used is known after the daemon was killed, and a job that ran on meanwhile is charged for all of it', async () => {
  await start(1);
  const store = await host.store();
  const id = await send('alice', 4);
  await host.state(id, 'running');
  const before = (await store.usage.list()).get('alice') ?? 0;
  expect(before).toBeGreaterThan(50); // a minute is paid ahead
  await host.kill();
  expect((await store.usage.list()).get('alice')).toBeCloseTo(before, 0);
  await start(1);
  await host.state(id, 'succeeded');
  await until(async () => (await store.leasing.list()).length === 0);
  const after = (await store.usage.list()).get('alice') ?? 0;
  expect(after).toBeGreaterThan(3.5);
  expect(after).toBeLessThan(30);
});
