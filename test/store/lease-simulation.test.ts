import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { useHome } from './home.js';
import { GIB } from './samples.js';
import { drawer, type Job, Machine, one, play } from './trace.js';

useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore({});
});
afterAll(() => store.close());
beforeEach(async () => {
  await store.connection.redis.flushall();
});

test('a job of eight GPUs that cannot start, as strangers hold two of them, blocks nobody', async () => {
  const machine = new Machine(store, [0, 0, 40 * GIB, 0, 0, 40 * GIB, 0, 0]);
  const big = one('j-big', 0, { count: 8 });
  const small = Array.from({ length: 6 }, (_, n) => one(`j-small${n}`, 1 + n / 10));
  const started = await play(machine, [big, ...small], drawer(1));
  expect([...started.keys()].sort()).toEqual(small.map(({ id }) => id));
  for (const { id, arrives } of small) expect(started.get(id)).toBe(arrives);
});

test('it has its turn before those who came later once it could start', async () => {
  const machine = new Machine(store, Array(8).fill(0));
  const long = Array.from({ length: 7 }, (_, n) => one(`j-long${n}`, 0, { lasts: 20 + n }));
  const big = one('j-big', 1, { count: 8 });
  const later = Array.from({ length: 20 }, (_, n) => one(`j-later${n}`, 2 + n, { lasts: 30 }));
  const started = await play(machine, [...long, big, ...later], drawer(2));
  expect(started.get('j-big')).toBe(26);
  for (const { id } of later) expect(started.get(id)).toBeGreaterThanOrEqual(36);
});

test('a job of two GPUs keeps two of eight for itself and leaves the others to whoever comes', async () => {
  const machine = new Machine(store, Array(8).fill(0));
  const busy = Array.from({ length: 8 }, (_, n) => one(`j-busy${n}`, 0, { lasts: n === 0 ? 5 : 10 + n }));
  const pair = one('j-pair', 1, { count: 2 });
  const later = [one('j-later0', 2, { lasts: 3 }), one('j-later1', 3, { lasts: 3 })];
  const started = await play(machine, [...busy, pair, ...later], drawer(3));
  expect(started.get('j-pair')).toBe(11);
  expect(started.get('j-later0')).toBe(12);
});

test('whole devices are had in bounded time, though small jobs that share go on coming', async () => {
  const machine = new Machine(store, [0, 0]);
  const jobs = Array.from({ length: 60 }, (_, n) => one(`j-s${n}`, n, { bytes: 20 * GIB, lasts: 7 }));
  const started = await play(machine, [...jobs, one('j-whole', 10.5)], drawer(4));
  expect(started.get('j-whole')).toBeLessThanOrEqual(10.5 + 7);
});

test('what ends in time goes before a job that waits for all devices, and puts it off by nothing', async () => {
  const machine = new Machine(store, Array(8).fill(0));
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
  const machine = new Machine(store, [0, 0]);
  const long = one('j-long', 0, { lasts: 6, limit: 6 });
  const big = one('j-big', 1, { count: 2 });
  const liars = Array.from({ length: 10 }, (_, n) => one(`j-liar${n}`, 2 + n, { lasts: 9, limit: 2 }));
  for (const job of [long, big, ...liars]) {
    machine.now = job.arrives;
    machine.waiting.push(job);
    await machine.ask(job, job.arrives);
  }
  expect([...machine.leases.keys()]).toEqual(['j-long', 'j-liar0']);
  machine.now = 6;
  await machine.free('j-long');
  await machine.settle(6, drawer(6));
  expect([...machine.leases.keys()]).toEqual(['j-liar0']);
  machine.now = 11;
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
    const machine = new Machine(
      store,
      Array.from({ length: 8 }, () => (draw() < 0.25 ? Math.floor(draw() * 60) * GIB : 0)),
    );
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
