import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openStore, readFairShare, type Store } from '../../src/store/index.js';
import { failure, useHome } from './home.js';
import { GIB } from './samples.js';
import { drawer, type Job, Machine, one, play, TOTAL } from './trace.js';

/** Who goes first among several users: made-up traces in made-up time, on the real scripts and a real Redis (see trace.ts). */
const home = useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore({});
});
afterAll(() => store.close());
beforeEach(async () => {
  await store.connection.redis.flushall();
});

const several = (user: string, arrives: number, count: number, changes: Partial<Job> = {}): Job[] =>
  Array.from({ length: count }, (_, n) => one(`j-${user}${n}`, arrives, { user, ...changes }));
const gpus = (count: number) => Array<number>(count).fill(0);
const startsOf = (started: Map<string, number>, user: string): number[] =>
  [...started].flatMap(([id, at]) => (id.startsWith(`j-${user}`) ? [at] : []));

test('a file of rules says what it changes, and each fault of one is told by its key', async () => {
  const path = join(home, 'fair-share.yaml');
  const read = (text: string) => {
    writeFileSync(path, text);
    return readFairShare(path);
  };
  const none = { halfLifeMs: 86_400_000, limits: { gpus: null, queued: null }, users: {}, admins: [] };
  expect(read('limits: {queued: 3}')).toEqual({ ...none, limits: { gpus: null, queued: 3 } });
  expect(read('# all as it is')).toEqual(none);
  for (const [text, why] of [
    ['half_life: 24', 'half_life: it should be a time such as 24h.'],
    ['half_life: soon', 'half_life: it should be a time such as 24h.'],
    ['limits: {queued: many}', 'limits.queued: it should be a whole number, or null for any.'],
    ['users: {bob: {gpus: 1.5}}', 'users.bob.gpus: it should be a whole number, or null for any.'],
    ['users: 3', 'users: it should be names with values.'],
    ['gpus: 3', 'the file: it should be without "gpus", which is unknown.'],
    ['limits: {gpus: -1}', 'limits.gpus: it should be a whole number, or null for any.'],
  ] as const) {
    const error = await failure((async () => read(text))());
    expect([error.code, error.message]).toEqual(['OOMTUNE_USAGE', `${path} cannot be used: ${why}`]);
  }
  const missing = await failure((async () => readFairShare(`${path}.none`))());
  expect(missing.message).toBe(`There is no file ${path}.none.`);
  expect(missing.remedy).toContain('OOMTUNE_FAIR_SHARE');
});

test('who comes with one job does not wait behind the forty of another', async () => {
  const machine = new Machine(store, gpus(8));
  const started = await play(machine, [...several('alice', 0, 40), one('j-bob', 5, { user: 'bob' })], drawer(1));
  expect(started.get('j-bob')).toBe(10); // when the first device is free
});

test('those who come at once with many jobs each have the devices by turns, not one after the other', async () => {
  const machine = new Machine(store, gpus(8));
  const users = ['alice', 'bob', 'carol', 'dave'];
  const all = users.map((user) => several(user, 0, 10));
  const jobs = Array.from({ length: 40 }, (_, n) => all[n % 4]?.[Math.floor(n / 4)] as Job);
  const started = await play(machine, jobs, drawer(2), () => {
    const running = users.map((user) => [...machine.leases.values()].filter((lease) => lease.user === user).length);
    if (users.every((user) => machine.waiting.some((job) => job.user === user)))
      expect(Math.max(...running) - Math.min(...running)).toBeLessThanOrEqual(1);
  });
  const last = users.map((user) => Math.max(...startsOf(started, user)));
  expect(Math.max(...last) - Math.min(...last)).toBeLessThanOrEqual(10);
});

test('of one user the higher priority goes first, and it changes nothing for others; what an admin gave does', async () => {
  const machine = new Machine(store, gpus(1));
  const jobs = [
    one('j-busy', 0, { user: 'zoe' }),
    one('j-alice0', 1, { user: 'alice', priority: 5 }),
    one('j-alice1', 2, { user: 'alice', priority: 1000 }),
    one('j-bob', 3, { user: 'bob' }),
    one('j-zoe', 4, { user: 'zoe', priority: 1_000_000 }),
    one('j-last', 5, { user: 'bob', across: -1 }),
    one('j-first', 6, { user: 'zoe', across: 1 }),
  ];
  const started = await play(machine, jobs, drawer(3));
  const order = [...started].sort((a, b) => a[1] - b[1]).map(([id]) => id);
  // zoe has had most from j-first on; alice and bob have taken turns
  expect(order).toEqual(['j-busy', 'j-first', 'j-alice1', 'j-bob', 'j-alice0', 'j-zoe', 'j-last']);
});

test('a user has as many GPUs as allowed, others have the rest, and a larger job of the same user is not starved', async () => {
  const machine = new Machine(store, gpus(8), { most: { alice: 2 } });
  const jobs = [
    ...several('alice', 0, 6),
    one('j-alicepair', 0.5, { user: 'alice', count: 2 }),
    ...Array.from({ length: 10 }, (_, n) => one(`j-alicelate${n}`, 1 + n, { user: 'alice', lasts: 7 })),
    one('j-alicenever', 0.6, { user: 'alice', count: 3 }),
    ...several('bob', 2, 6),
  ];
  const started = await play(machine, jobs, drawer(4));
  for (const at of startsOf(started, 'bob')) expect(at).toBe(2);
  expect(started.get('j-alicepair')).toBe(30); // after its three elder pairs
  expect(started.has('j-alicenever')).toBe(false);
  expect(started.size).toBe(jobs.length - 1);
});

test('jobs of a user who is at the limit keep no device from others', async () => {
  const machine = new Machine(store, gpus(4), { most: { alice: 2 } });
  const jobs = [...several('alice', 0, 8, { lasts: 50 }), ...several('bob', 1, 40, { lasts: 3 })];
  const started = await play(machine, jobs, drawer(5));
  expect(Math.max(...startsOf(started, 'bob'))).toBe(1 + 19 * 3);
});

test('usage is what was had, each second of it, and counts half after a half-life', async () => {
  const machine = new Machine(store, gpus(4), { halfLifeMs: 1e15 });
  const jobs = [
    one('j-a', 0, { user: 'alice', lasts: 500, count: 2 }),
    one('j-b', 3, { user: 'bob', lasts: 1 }),
    one('j-c', 7, { user: 'carol', lasts: 130, bytes: TOTAL / 4 }),
  ];
  await play(machine, jobs, drawer(6));
  const used = await machine.usage();
  for (const [user, seconds] of machine.had) expect(used.get(user), user).toBeCloseTo(seconds, 1);
  expect(Object.fromEntries(machine.had)).toEqual({ alice: 1000, bob: 1, carol: 130 / 4 });
  const shorter = new Machine(store, gpus(4), { halfLifeMs: 3_600_000 });
  await store.connection.redis.del(store.keys.usage);
  await play(shorter, [one('j-a', 0, { user: 'alice', lasts: 36 })], drawer(6));
  shorter.now = 36 + 2 * 3600;
  expect((await shorter.usage()).get('alice')).toBeCloseTo(9, 0);
});

test('what is held counts from the moment in which it is granted', async () => {
  const machine = new Machine(store, gpus(2));
  machine.now = 0;
  expect(await machine.ask(one('j-a', 0, { user: 'alice', count: 2 }), 0)).toBe(true);
  expect((await machine.usage()).get('alice')).toBe(120); // a minute of each is paid ahead
  machine.now = 10;
  await machine.free('j-a');
  expect((await machine.usage()).get('alice')).toBeCloseTo(20, 1);
});

test('a job of all devices has its turn though many others go on sending small ones', async () => {
  const machine = new Machine(store, gpus(8));
  const small = ['bob', 'carol', 'dave'].flatMap((user) =>
    Array.from({ length: 30 }, (_, n) => one(`j-${user}${n}`, 2 * n, { user, lasts: 8 + (n % 12) })),
  );
  const heavy = one('j-before', 0, { user: 'alice', count: 8, lasts: 10 });
  const big = one('j-big', 12, { user: 'alice', count: 8 });
  const started = await play(machine, [heavy, ...small, big], drawer(7));
  // alice has had 80 device-seconds. The others may have as much each before her, and what runs then ends within 19
  expect(started.get('j-big')).toBeLessThanOrEqual(12 + (3 * 80) / 8 + 2 * 19);
});

describe('random traces of six users', () => {
  const USERS = ['alice', 'bob', 'carol', 'dave', 'erin', 'frank'];
  const KINDS = {
    plain: {},
    limits: { most: { alice: 2, bob: 4, carol: 1 } },
    'a short half-life': { halfLifeMs: 20_000 },
  };
  const cases = Object.keys(KINDS).flatMap((kind) =>
    Array.from({ length: 6 }, (_, n) => ({ kind: kind as keyof typeof KINDS, seed: n + 40 })),
  );

  test.each(cases)('$kind, trace $seed: no device idles while a job that fits waits, and all start', async (one) => {
    const draw = drawer(one.seed);
    const foreign = Array.from({ length: 8 }, () => (draw() < 0.2 ? Math.floor(draw() * 60) * GIB : 0));
    const machine = new Machine(store, foreign, KINDS[one.kind]);
    const jobs = Array.from({ length: 40 }, (_, n): Job => {
      const kind = draw();
      const lasts = 1 + Math.floor(draw() * 12);
      return {
        id: `j-${n}`,
        user: USERS[Math.floor(draw() ** 2 * USERS.length)] as string, // some send most of them
        arrives: Math.floor(draw() * 40),
        lasts,
        count: kind < 0.6 ? 1 : kind < 0.8 ? 2 : kind < 0.92 ? 4 : 8,
        bytes: draw() < 0.4 ? Math.ceil(draw() * 70) * GIB : null,
        priority: Math.floor(draw() * 3),
        ...(draw() < 0.5 ? { limit: Math.ceil(lasts * (1 + 2 * draw() ** 2)) } : {}),
        ...(draw() < 0.05 ? { across: draw() < 0.5 ? 1 : -1 } : {}),
      };
    });
    const started = await play(machine, jobs, draw);
    const able = jobs.filter((job) => machine.startable(job));
    expect([...started.keys()].sort()).toEqual(able.map(({ id }) => id).sort());
    expect(await store.connection.redis.hlen(store.keys.leases)).toBe(0);
  });

  test.each([60, 61, 62])('trace %i: who always has jobs waiting gets as much as the others', async (seed) => {
    const draw = drawer(seed);
    const machine = new Machine(store, gpus(8));
    const users = USERS.slice(0, 2 + (seed % 5));
    // one sends all of them first, and longer ones
    const jobs = users.flatMap((user, at) =>
      Array.from({ length: 16 }, (_, n) =>
        one(`j-${user}${n}`, at * 10, { user, lasts: Math.ceil((at === 0 ? 600 : 300) * (0.5 + draw())) }),
      ),
    );
    const had = (now: number) =>
      users.map(
        (user) =>
          (machine.had.get(user) ?? 0) +
          [...machine.leases.values()]
            .filter((lease) => lease.user === user)
            .reduce((sum, { id }) => sum + now - (machine.began.get(id) ?? now), 0),
      );
    let compared = 0;
    await play(machine, jobs, draw, (now) => {
      if (!users.every((user) => machine.waiting.some((job) => job.user === user))) return;
      compared += 1;
      const all = had(now);
      // eight of the longest jobs, begun before the others came, and a minute of each device
      expect(Math.max(...all) - Math.min(...all)).toBeLessThanOrEqual(8 * 900 + 8 * 60);
    });
    expect(compared).toBeGreaterThan(8);
  });
});
