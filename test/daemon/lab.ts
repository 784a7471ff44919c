import type { Redis } from 'ioredis';
import { z } from 'zod';
import { readJson } from '../../src/contract/fields.js';
import type { Store } from '../../src/store/index.js';
import { sleep } from './host.js';

/** A lab's machine: who has how many jobs, and what is looked at while they run. */
export const GPUS = 8;
export const PEOPLE = { alice: 16, bob: 8, carol: 6, dave: 5, erin: 4, frank: 1 };
export type Person = keyof typeof PEOPLE;
/** GPUs that carol may have at a time; nobody else is limited. */
export const CAROLS = 2;

export interface Wish {
  person: Person;
  seconds: number;
  gpus: number;
}

/** Forty jobs, in the order in which they are sent: one has sent all of hers before anybody else comes. */
export function wishes(draw: () => number): Wish[] {
  return (Object.entries(PEOPLE) as [Person, number][]).flatMap(([person, count]) =>
    Array.from({ length: count }, (_, n): Wish => {
      const kind = draw();
      const some = kind < 0.6 ? 1 : kind < 0.9 ? 2 : 4;
      const gpus = person === 'carol' ? 1 + (n % 2) : person === 'dave' && n === 0 ? GPUS : some;
      return { person, seconds: 0.3 + draw() * 1.2, gpus };
    }),
  );
}

const ticket = z.object({ user: z.string(), count: z.number(), since: z.number() });

/** Whatever a key holds. */
export async function contentOf(redis: Redis, key: string): Promise<unknown> {
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
async function first(store: Store, gpus: number, most: (user: string) => number): Promise<string | null> {
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
  const next = line[0];
  return next !== undefined && gpus - held() >= next.count ? next.id : null;
}

/** Looks until it is stopped, which tells how long (ms) at most somebody was first in line and waited although there was room. */
export function watchIdle(store: Store, most: (user: string) => number): () => Promise<number> {
  let idle: { id: string; since: number } | null = null;
  let longest = 0;
  let stopped = false;
  const watching = (async () => {
    while (!stopped) {
      const id = await first(store, GPUS, most);
      if (id === null || idle?.id !== id) idle = id === null ? null : { id, since: Date.now() };
      else longest = Math.max(longest, Date.now() - idle.since);
      await sleep(50);
    }
  })();
  return async () => {
    stopped = true;
    await watching;
    return longest;
  };
}

/** What the jobs noted: `TIME begin|end JOB DEVICES`. The order in which they began; throws where two had a device at a time. */
export function turns(lines: string[]): { began: string[]; most: (jobs: Set<string>) => number } {
  const sorted = lines
    .map((line) => line.split(' ') as [string, string, string, string])
    .sort((a, b) => Number(a[0]) - Number(b[0]));
  const on = new Map<string, string>();
  const states: Map<string, string>[] = [];
  for (const [, what, id, list] of sorted) {
    for (const device of list.split(',')) {
      if (what === 'end') on.delete(device);
      else if (on.has(device)) throw new Error(`${device} was had by ${on.get(device)} and ${id} at a time`);
      else on.set(device, id);
    }
    states.push(new Map(on));
  }
  return {
    began: sorted.flatMap(([, what, id]) => (what === 'begin' ? [id] : [])),
    most: (jobs) => Math.max(...states.map((state) => [...state.values()].filter((id) => jobs.has(id)).length)),
  };
}
