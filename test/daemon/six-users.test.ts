import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { readJson } from '../../src/contract/fields.js';
import { submitJob } from '../../src/daemon/index.js';
import { until } from '../store/home.js';
import { options } from '../store/samples.js';
import { drawer } from '../store/trace.js';
import { Host, sleep } from './host.js';

/**
 * A lab's day in half a minute: one daemon, a real Redis, real processes. The GPUs are stand-ins, and so are the six people: their
 * names stand in the records as a daemon for several users would write them, and all processes are those of who runs the test.
 */
const RULES = join(mkdtempSync(join(tmpdir(), 'oomtune-share-')), 'fair-share.yaml');
writeFileSync(RULES, 'half_life: 24h\nusers: {carol: {gpus: 2}}\n');
process.env.OOMTUNE_FAIR_SHARE = RULES;

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const GPUS = 8;
/** How many jobs each of them has. */
const PEOPLE = { alice: 16, bob: 8, carol: 6, dave: 5, erin: 4, frank: 1 };
const ticket = z.object({ user: z.string(), count: z.number(), since: z.number() });

interface Sent {
  owner: string;
  id: string;
  gpus: number;
}

/** Prints what it has of everybody's secrets, and notes when it begins and ends, and where. */
const JOB =
  'env | grep SECRET_OF_; echo "$(date +%s.%N) begin $OOMTUNE_JOB_ID $OOMTUNE_DEVICE" >> times; sleep "$0"; echo "$(date +%s.%N) end $OOMTUNE_JOB_ID $OOMTUNE_DEVICE" >> times';

async function send(owner: string, seconds: number, gpus: number): Promise<Sent> {
  const wanted = options({ cwd: host.work, device: null, budget: null, gpus, name: `${owner}-${gpus}` });
  const environment = { PATH: process.env.PATH, [`SECRET_OF_${owner}`]: `only-${owner}-knows` };
  const command = ['/bin/sh', '-c', JOB, String(seconds)];
  const { job } = await submitJob(await host.store(), { command, options: wanted, environment, owner });
  return { owner, id: job, gpus };
}

/** Whatever a key holds. */
async function contentOf(redis: Redis, key: string): Promise<unknown> {
  switch (await redis.type(key)) {
    case 'hash':
      return redis.hgetall(key);
    case 'list':
      return redis.lrange(key, 0, -1);
    case 'set':
      return redis.smembers(key);
    case 'zset':
      return redis.zrange(key, 0, -1);
    case 'stream':
      return redis.xrange(key, '-', '+');
    default:
      return redis.get(key);
  }
}

/** Who is first in line although enough devices are free; null: nobody. */
async function look(most: (user: string) => number): Promise<string | null> {
  const store = await host.store();
  const [leases, waits, used] = await Promise.all([
    store.leasing.list(),
    store.connection.redis.hgetall(store.keys.leaseQueue),
    store.usage.list(),
  ]);
  const held = (user?: string) =>
    leases
      .filter((lease) => user === undefined || lease.user === user)
      .reduce((sum, { devices }) => sum + devices.length, 0);
  const line = Object.entries(waits)
    .flatMap(([id, text]) => {
      const read = readJson(ticket, text);
      return read === null || held(read.user) + read.count > most(read.user) ? [] : [{ id, ...read }];
    })
    .sort((a, b) => (used.get(a.user) ?? 0) - (used.get(b.user) ?? 0) || a.since - b.since);
  const first = line[0];
  return first !== undefined && GPUS - held() >= first.count ? first.id : null;
}

test('six users with forty jobs on eight GPUs: nobody starves, nobody sees what is not his, and no GPU idles', async () => {
  const draw = drawer(2026);
  await host.start(
    { gpus: Array(GPUS).fill('NVIDIA H200'), leaseTimes: { lookMs: 300, reserveAfterMs: 1000 } },
    { OOMTUNE_FAIR_SHARE: RULES },
  );
  const store = await host.store();
  const sent: Sent[] = [];
  let idle: { id: string; since: number } | null = null;
  let longest = 0;
  let done = false;
  const watch = (async () => {
    while (!done) {
      const id = await look((user) => (user === 'carol' ? 2 : GPUS));
      if (id === null || idle?.id !== id) idle = id === null ? null : { id, since: Date.now() };
      else longest = Math.max(longest, Date.now() - idle.since);
      await sleep(50);
    }
  })();
  // The first has sent all of hers before anybody else comes
  for (const [owner, count] of Object.entries(PEOPLE)) {
    for (let n = 0; n < count; n += 1) {
      const kind = draw();
      const gpus =
        owner === 'carol' ? 1 + (n % 2) : owner === 'dave' && n === 0 ? 8 : kind < 0.6 ? 1 : kind < 0.9 ? 2 : 4;
      sent.push(await send(owner, 0.3 + draw() * 1.2, gpus));
    }
  }
  expect(sent).toHaveLength(40);
  const all = async () => Promise.all(sent.map(({ id }) => host.job(id)));
  await until(async () => (await all()).every(({ ended_at }) => ended_at !== null), 240);
  done = true;
  await watch;

  // Nobody starved
  expect((await all()).map(({ state }) => state)).toEqual(sent.map(() => 'succeeded'));
  const lines = host.lines('times').sort();
  const began = lines.flatMap((line) => (line.includes(' begin ') ? [line.split(' ')[2] as string] : []));
  const turns = (owner: string) => sent.flatMap((one) => (one.owner === owner ? [began.indexOf(one.id)] : []));
  expect(new Set(began).size).toBe(40);
  // Whoever has few jobs has them all begun before the one who has most has her last
  const last = Math.max(...turns('alice'));
  expect(last).toBeGreaterThan(30);
  for (const owner of ['dave', 'erin', 'frank']) expect(Math.max(...turns(owner)), owner).toBeLessThan(last);
  expect(Math.min(...turns('frank'))).toBeLessThan(30);

  // Each device one job at a time, and carol never more than two
  const gpusOf = new Map(sent.map(({ id, gpus }) => [id, gpus]));
  const on = new Map<string, string>();
  for (const line of lines) {
    const [, what, id, list] = line.split(' ') as [string, string, string, string];
    const devices = list.split(',');
    expect(new Set(devices).size).toBe(gpusOf.get(id));
    for (const device of devices) {
      if (what === 'begin') expect(on.get(device), `${device} at ${line}`).toBeUndefined();
      if (what === 'begin') on.set(device, id);
      else on.delete(device);
    }
    const carols = [...on.values()].filter((id) => sent.some((one) => one.id === id && one.owner === 'carol'));
    expect(carols.length).toBeLessThanOrEqual(2);
  }

  // Nobody's data seen: neither by another's job, nor in Redis, where everybody's records are
  for (const { id, owner } of sent) {
    const log = join((await host.job(id)).launches[0]?.dir ?? '', 'log');
    expect(readFileSync(log, 'utf8').trim()).toBe(`SECRET_OF_${owner}=only-${owner}-knows`);
  }
  const { redis } = store.connection;
  for (const key of await redis.keys(`${store.keys.prefix}:*`)) {
    if (key.startsWith(store.keys.log(''))) continue; // what a job prints is its log
    expect(JSON.stringify(await contentOf(redis, key)), key).not.toContain('-knows');
  }

  // No idle GPU: whoever is first in line and would fit is never left waiting beyond the time to look again
  expect(longest).toBeLessThan(10_000);
  const used = await store.usage.list();
  expect([...used.keys()].sort()).toEqual(Object.keys(PEOPLE).sort());
  expect(await host.leftOver()).toEqual([]);
}, 300_000);
