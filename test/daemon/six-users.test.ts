import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { submitJob } from '../../src/daemon/index.js';
import { until } from '../store/home.js';
import { options } from '../store/samples.js';
import { drawer } from '../store/trace.js';
import { Host } from './host.js';
import { CAROLS, contentOf, GPUS, PEOPLE, turns, type Wish, watchIdle, wishes } from './lab.js';

/**
 * A lab's day in half a minute: one daemon, a real Redis, real processes. The GPUs are stand-ins, and so are the six people: their
 * names stand in the records as a daemon for several users writes them, and all processes are those of who runs the test.
 * test/daemon/system/six-users.test.ts does the same with real users, where they can be made.
 */
const RULES = join(mkdtempSync(join(tmpdir(), 'oomtune-share-')), 'fair-share.yaml');
writeFileSync(RULES, `half_life: 24h\nusers: {carol: {gpus: ${CAROLS}}}\n`);
process.env.OOMTUNE_FAIR_SHARE = RULES;

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

/** Prints what it has of everybody's secrets, and notes when it begins and ends, and where. */
const JOB =
  'env | grep SECRET_OF_; echo "$(date +%s.%N) begin $OOMTUNE_JOB_ID $OOMTUNE_DEVICE" >> times; sleep "$0"; echo "$(date +%s.%N) end $OOMTUNE_JOB_ID $OOMTUNE_DEVICE" >> times';

async function send({ person: owner, seconds, gpus }: Wish): Promise<string> {
  const wanted = options({ cwd: host.work, device: null, budget: null, gpus, name: `${owner}-${gpus}` });
  const environment = { PATH: process.env.PATH, [`SECRET_OF_${owner}`]: `only-${owner}-knows` };
  const command = ['/bin/sh', '-c', JOB, String(seconds)];
  return (await submitJob(await host.store(), { command, options: wanted, environment, owner })).job;
}

test('six users with forty jobs on eight GPUs: nobody starves, nobody sees what is not his, and no GPU idles', async () => {
  await host.start(
    { gpus: Array(GPUS).fill('NVIDIA H200'), leaseTimes: { lookMs: 300, reserveAfterMs: 1000 } },
    { OOMTUNE_FAIR_SHARE: RULES },
  );
  const store = await host.store();
  const stop = watchIdle(store, (user) => (user === 'carol' ? CAROLS : GPUS));
  const sent: (Wish & { id: string })[] = [];
  for (const wish of wishes(drawer(2026))) sent.push({ ...wish, id: await send(wish) });
  expect(sent).toHaveLength(40);
  const all = async () => Promise.all(sent.map(({ id }) => host.job(id)));
  await until(async () => (await all()).every(({ ended_at }) => ended_at !== null), 240);
  const longest = await stop();

  // Nobody starved: whoever has few jobs has them all begun before the one who has most has her last
  const jobs = await all();
  expect(jobs.map(({ state }) => state)).toEqual(sent.map(() => 'succeeded'));
  const { began, most } = turns(host.lines('times'));
  expect(new Set(began).size).toBe(40);
  const turnsOf = (person: string) => sent.flatMap((one) => (one.person === person ? [began.indexOf(one.id)] : []));
  const last = Math.max(...turnsOf('alice'));
  expect(last).toBeGreaterThan(30);
  for (const person of ['dave', 'erin', 'frank']) expect(Math.max(...turnsOf(person)), person).toBeLessThan(last);
  expect(Math.min(...turnsOf('frank'))).toBeLessThan(30);

  // Each device one job at a time, each job as many as it asked for, and carol never more than she may have
  expect(jobs.map(({ devices }) => new Set(devices).size)).toEqual(sent.map(({ gpus }) => gpus));
  expect(most(new Set(sent.flatMap(({ id, person }) => (person === 'carol' ? [id] : []))))).toBe(CAROLS);

  // Nobody's data seen: neither by another's job, nor in Redis, where everybody's records are
  for (const [at, { person }] of sent.entries()) {
    const log = join(jobs[at]?.launches[0]?.dir ?? '', 'log');
    expect(readFileSync(log, 'utf8').trim()).toBe(`SECRET_OF_${person}=only-${person}-knows`);
  }
  const { redis } = store.connection;
  for (const key of await redis.keys(`${store.keys.prefix}:*`)) {
    if (key.startsWith(store.keys.log(''))) continue; // what a job prints is its log
    expect(JSON.stringify(await contentOf(redis, key)), key).not.toContain('-knows');
  }

  // No idle GPU: who is first in line and would fit never waits for longer than a few looks
  expect(longest).toBeLessThan(10_000);
  const used = await store.usage.list();
  expect([...used.keys()].sort()).toEqual(Object.keys(PEOPLE).sort());
  expect(await host.leftOver()).toEqual([]);
}, 300_000);
