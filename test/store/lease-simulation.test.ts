import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { toRequest } from '../../src/store/lease-request.js';
import { runScript } from '../../src/store/scripts.js';
import { ROOT, useHome } from './home.js';
import { GIB, gpu } from './samples.js';

/**
 * The scheduler's one decision, who gets a device, on made-up traces in made-up time: the scripts and the Redis are the real ones.
 * Every wait counts as a long one, and only the clock is made up: a unit of a trace's time is a second of it.
 */
useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore({});
});
afterAll(() => store.close());
let clock = 0;
beforeEach(async () => {
  clock = 1_700_000_000_000;
  await store.connection.redis.flushall();
});

interface Job {
  id: string;
  arrives: number;
  lasts: number;
  count: number;
  /** Null: whole devices. */
  bytes: number | null;
  /** Its time limit, or what is expected of it; absent: nobody knows. */
  limit?: number;
}

interface Lease extends Job {
  devices: string[];
  ends: number;
}

const TOTAL = 80 * GIB;

const read = (name: string) => readFileSync(join(ROOT, 'src/store/lua/lease', `${name}.lua`), 'utf8');
const ACQUIRE = `${read('prelude')}\n${read('acquire')}`;

/** The script at the time of the trace. */
function acquire(redis: Redis, keys: string[], args: (string | number)[]): Promise<unknown> {
  const lua = ACQUIRE.replace("redis.call('TIME')", `{${Math.floor(clock / 1000)}, ${(clock % 1000) * 1000}}`);
  expect(lua).not.toBe(ACQUIRE);
  return redis.eval(lua, keys.length, ...keys, ...args);
}

class Machine {
  readonly foreign: number[];
  readonly leases = new Map<string, Lease>();
  readonly began = new Map<string, number>();
  /** In the order in which they first asked. */
  waiting: Job[] = [];

  constructor(foreign: number[]) {
    this.foreign = foreign;
  }

  #keys(): string[] {
    const { leases, leaseQueue, wake, events, refused } = store.keys;
    return [leases, leaseQueue, wake, events, refused];
  }

  async ask(job: Job, now: number): Promise<boolean> {
    const devices = this.foreign.map((bytes, n) => toRequest(gpu(n, bytes)));
    const share = job.bytes !== null;
    const bytes = job.bytes ?? undefined;
    const lasts = job.limit === undefined ? undefined : job.limit * 1000;
    const request = { devices, count: job.count, bytes, share, lasts, lenient: false };
    const record = { host: 'h', boot: 'b', instance: job.id, process: { pid: 1, start: '1' }, bytes, share };
    const args = [job.id, JSON.stringify(request), JSON.stringify(record), 1e9, -1, '[]'];
    const reply = JSON.parse(String(await acquire(store.connection.redis, this.#keys(), args)));
    if (reply.granted === undefined) return false;
    this.leases.set(job.id, { ...job, devices: reply.granted, ends: now + job.lasts });
    this.began.set(job.id, now);
    this.waiting = this.waiting.filter((one) => one !== job);
    return true;
  }

  async free(id: string): Promise<void> {
    this.leases.delete(id);
    await runScript(store.connection.redis, 'lease/free', this.#keys(), [id, '', '']);
  }

  /** Everybody who waits asks, in any order, until nobody gets anything more. */
  async settle(now: number, draw: () => number): Promise<void> {
    for (let granted = true; granted; ) {
      granted = false;
      for (const job of [...this.waiting].sort(() => draw() - 0.5)) granted = (await this.ask(job, now)) || granted;
    }
  }

  /** Devices that would do for the job, beside these leases. */
  fitting(job: Job, leases: Iterable<Lease>): number[] {
    const all = [...leases];
    return this.foreign.flatMap((foreign, n) => {
      const here = all.filter(({ devices }) => devices.includes(`GPU-${n}`));
      if (job.bytes === null) return here.length === 0 && foreign <= 0.1 * TOTAL ? [n] : [];
      if (here.some(({ bytes }) => bytes === null)) return [];
      const held = here.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0);
      return TOTAL - foreign - held >= job.bytes ? [n] : [];
    });
  }

  startable(job: Job): boolean {
    return this.fitting(job, []).length >= job.count;
  }

  /** When the job can start at the latest, if nothing more is begun before it: by the limits of what runs. */
  earliest(job: Job, now: number): number {
    const held = [...this.leases.values()];
    const latest = ({ id, limit }: Lease) => (limit === undefined ? Infinity : (this.began.get(id) ?? now) + limit);
    const times = [now, ...held.map(latest)].sort((a, b) => a - b);
    const free = (time: number) =>
      this.fitting(
        job,
        held.filter((lease) => latest(lease) > time),
      ).length;
    return times.find((time) => time >= now && free(time) >= job.count) ?? Infinity;
  }

  /**
   * Jobs that wait although there is room for them, beyond what is kept for those who have waited longer, or that would have ended
   * before any of these could start.
   */
  wasted(now: number): string[] {
    const found: string[] = [];
    let kept = 0;
    let before = Infinity;
    for (const job of this.waiting) {
      const fitting = this.fitting(job, this.leases.values()).length;
      const over = now + (job.limit ?? Infinity) < before;
      if (fitting - kept >= job.count || (fitting >= job.count && over)) found.push(job.id);
      if (!this.startable(job)) continue;
      kept += job.count;
      const start = this.earliest(job, now);
      before = Math.min(before, start === Infinity ? now : start); // nobody knows when: at any moment
    }
    return found;
  }
}

/** Random, the same in every run. */
function drawer(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Plays the jobs to the end; returns when each started, and who never could. */
async function play(machine: Machine, jobs: Job[], draw: () => number): Promise<Map<string, number>> {
  const coming = [...jobs].sort((a, b) => a.arrives - b.arrives);
  const begin = clock;
  /** When who is the first in line was to start at the latest. */
  const promised = new Map<string, number>();
  for (;;) {
    const times = [...machine.leases.values()].map(({ ends }) => ends);
    if (coming[0] !== undefined) times.push(coming[0].arrives);
    if (times.length === 0) return machine.began;
    const now = Math.min(...times);
    clock = begin + now * 1000;
    for (const lease of [...machine.leases.values()]) if (lease.ends <= now) await machine.free(lease.id);
    while (coming[0] !== undefined && coming[0].arrives <= now) {
      const job = coming.shift() as Job;
      machine.waiting.push(job);
      await machine.ask(job, now);
      clock += 1; // they are told apart by the time at which they first asked
    }
    await machine.settle(now, draw);
    expect(machine.wasted(now), `at ${now}`).toEqual([]);
    for (const [id, by] of promised) expect(machine.began.get(id) ?? now, `the start of ${id}`).toBeLessThanOrEqual(by);
    const first = machine.waiting.find((job) => machine.startable(job));
    const start = first === undefined ? Infinity : machine.earliest(first, now);
    if (first !== undefined && start < (promised.get(first.id) ?? Infinity)) promised.set(first.id, start);
    for (const [n, foreign] of machine.foreign.entries()) {
      const here = [...machine.leases.values()].filter(({ devices }) => devices.includes(`GPU-${n}`));
      const held = here.reduce((sum, { bytes }) => sum + (bytes ?? TOTAL - foreign), 0);
      expect(held + foreign, `GPU-${n} at ${now}`).toBeLessThanOrEqual(TOTAL);
    }
  }
}

const one = (id: string, arrives: number, changes: Partial<Job> = {}): Job => ({
  id,
  arrives,
  lasts: 10,
  count: 1,
  bytes: null,
  ...changes,
});

test('a job of eight GPUs that cannot start, as strangers hold two of them, blocks nobody', async () => {
  const machine = new Machine([0, 0, 40 * GIB, 0, 0, 40 * GIB, 0, 0]);
  const big = one('j-big', 0, { count: 8 });
  const small = Array.from({ length: 6 }, (_, n) => one(`j-small${n}`, 1 + n / 10));
  const started = await play(machine, [big, ...small], drawer(1));
  expect([...started.keys()].sort()).toEqual(small.map(({ id }) => id));
  for (const { id, arrives } of small) expect(started.get(id)).toBe(arrives);
});

test('it has its turn before those who came later once it could start', async () => {
  const machine = new Machine(Array(8).fill(0));
  const long = Array.from({ length: 7 }, (_, n) => one(`j-long${n}`, 0, { lasts: 20 + n }));
  const big = one('j-big', 1, { count: 8 });
  const later = Array.from({ length: 20 }, (_, n) => one(`j-later${n}`, 2 + n, { lasts: 30 }));
  const started = await play(machine, [...long, big, ...later], drawer(2));
  expect(started.get('j-big')).toBe(26);
  for (const { id } of later) expect(started.get(id)).toBeGreaterThanOrEqual(36);
});

test('a job of two GPUs keeps two of eight for itself and leaves the others to whoever comes', async () => {
  const machine = new Machine(Array(8).fill(0));
  const busy = Array.from({ length: 8 }, (_, n) => one(`j-busy${n}`, 0, { lasts: n === 0 ? 5 : 10 + n }));
  const pair = one('j-pair', 1, { count: 2 });
  const later = [one('j-later0', 2, { lasts: 3 }), one('j-later1', 3, { lasts: 3 })];
  const started = await play(machine, [...busy, pair, ...later], drawer(3));
  expect(started.get('j-pair')).toBe(11);
  expect(started.get('j-later0')).toBe(12);
});

test('whole devices are had in bounded time, though small jobs that share go on coming', async () => {
  const machine = new Machine([0, 0]);
  const jobs = Array.from({ length: 60 }, (_, n) => one(`j-s${n}`, n, { bytes: 20 * GIB, lasts: 7 }));
  const started = await play(machine, [...jobs, one('j-whole', 10.5)], drawer(4));
  expect(started.get('j-whole')).toBeLessThanOrEqual(10.5 + 7);
});

test('what ends in time goes before a job that waits for all devices, and puts it off by nothing', async () => {
  const machine = new Machine(Array(8).fill(0));
  const long = one('j-long', 0, { lasts: 11, limit: 11 });
  const big = one('j-big', 1, { count: 8 });
  const brief = Array.from({ length: 7 }, (_, n) => one(`j-brief${n}`, 2, { lasts: 4, limit: 5 }));
  const late = one('j-late', 2.1, { lasts: 9, limit: 9 });
  const unknown = one('j-unknown', 2.2, { lasts: 1 });
  const started = await play(machine, [long, big, ...brief, late, unknown], drawer(5));
  for (const { id } of brief) expect(started.get(id)).toBe(2);
  expect(started.get('j-big')).toBe(11);
  for (const { id } of [late, unknown]) expect(started.get(id)).toBe(21);
});

test('jobs that take longer than the like of them took before put a job off once, not again and again', async () => {
  const machine = new Machine([0, 0]);
  const long = one('j-long', 0, { lasts: 6, limit: 6 });
  const big = one('j-big', 1, { count: 2 });
  const liars = Array.from({ length: 10 }, (_, n) => one(`j-liar${n}`, 2 + n, { lasts: 9, limit: 2 }));
  const begin = clock;
  for (const job of [long, big, ...liars]) {
    clock = begin + job.arrives * 1000;
    machine.waiting.push(job);
    await machine.ask(job, job.arrives);
  }
  expect([...machine.leases.keys()]).toEqual(['j-long', 'j-liar0']);
  clock = begin + 6000;
  await machine.free('j-long');
  await machine.settle(6, drawer(6));
  expect([...machine.leases.keys()]).toEqual(['j-liar0']);
  clock = begin + 11_000;
  await machine.free('j-liar0');
  await machine.settle(11, drawer(6));
  expect([...machine.leases.keys()]).toEqual(['j-big']);
});

/** As users give them: of all, of some or of none of their jobs, and mostly far too long. */
const LIMITS = { none: 0, some: 0.5, all: 1 };

test.each(
  Object.keys(LIMITS).flatMap((limits) =>
    Array.from({ length: 8 }, (_, n) => ({ limits: limits as keyof typeof LIMITS, seed: n + 10 })),
  ),
)(
  '$limits limits, trace $seed: no device idles while a job that fits waits, and all that can start do in time',
  async ({ limits, seed }) => {
    const draw = drawer(seed);
    const machine = new Machine(Array.from({ length: 8 }, () => (draw() < 0.25 ? Math.floor(draw() * 60) * GIB : 0)));
    const jobs = Array.from({ length: 40 }, (_, n): Job => {
      const kind = draw();
      const count = kind < 0.6 ? 1 : kind < 0.8 ? 2 : kind < 0.92 ? 4 : 8;
      const bytes = draw() < 0.5 ? Math.ceil(draw() * 70) * GIB : null;
      const lasts = 1 + Math.floor(draw() * 12);
      const limit = draw() < LIMITS[limits] ? { limit: Math.ceil(lasts * (1 + 2 * draw() ** 2)) } : {};
      return { id: `j-${n}`, arrives: Math.floor(draw() * 60), lasts, count, bytes, ...limit };
    });
    const started = await play(machine, jobs, draw);
    const able = jobs.filter((job) => machine.startable(job));
    expect([...started.keys()].sort()).toEqual(able.map(({ id }) => id).sort());
    // Who came before it may each take their longest, one after the other, and it starts then at the latest
    for (const job of able) {
      const before = able.filter((other) => other.arrives <= job.arrives && other !== job).length;
      expect((started.get(job.id) ?? 0) - job.arrives).toBeLessThanOrEqual(12 * (before + 1));
    }
    const { redis } = store.connection;
    expect(await redis.hlen(store.keys.leases)).toBe(0);
  },
);
