import { spawn } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { newJobId, openStore, type Store } from '../../src/store/index.js';
import { reservedBy } from '../../src/store/lease-record.js';
import type { LeaseRequest } from '../../src/store/lease-request.js';
import { failure, script, until, useHome } from './home.js';
import { GIB, gpu } from './samples.js';

const home = useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore({ leaseTimes: { reserveAfterMs: 300, lookMs: 100 } });
});
afterAll(() => store.close());
// What is held is written back where Redis has lost it: each test lets go of its own
beforeEach(async () => {
  for (const lease of held.splice(0)) await lease.release();
  await store.connection.redis.flushall();
  rmSync(join(home, 'leases'), { recursive: true, force: true });
});

const never = new AbortController().signal;
const held: { release(): Promise<void> }[] = [];
const ask = async (changes: Partial<LeaseRequest> = {}) => {
  const lease = await store.leasing.acquire({
    owner: newJobId(),
    devices: [gpu(0), gpu(1)],
    count: 1,
    bytes: null,
    share: false,
    signal: never,
    onWait: () => {},
    ...changes,
  });
  held.push(lease);
  return lease;
};

/** Asks, and tells whether it has to wait: nothing else could free the device meanwhile. */
async function waits(changes: Partial<LeaseRequest>): Promise<string | null> {
  const controller = new AbortController();
  let reason: string | null = null;
  const asked = ask({
    ...changes,
    signal: controller.signal,
    onWait: (text) => {
      reason = text;
      controller.abort();
    },
  });
  const lease = await asked.catch(() => null);
  await lease?.release();
  return reason;
}

test('a whole device is one job’s, whether others share or not', async () => {
  const whole = await ask({ devices: [gpu(0)] });
  expect(await waits({ devices: [gpu(0)] })).toContain('holds all');
  expect(await waits({ devices: [gpu(0)], bytes: GIB, share: true })).toContain('holds all');
  await whole.release();
  const shared = await ask({ devices: [gpu(0)], bytes: 10 * GIB, share: true });
  expect(await waits({ devices: [gpu(0)] })).toContain('holds 10 GiB');
  expect(await waits({ devices: [gpu(0)], bytes: GIB, share: false })).toContain('holds 10 GiB');
  await shared.release();
});

test('sharing jobs fit by their bytes, and a device that is shared already is filled first', async () => {
  const leases = [];
  for (const bytes of [30, 30, 20]) leases.push(await ask({ bytes: bytes * GIB, share: true }));
  expect(leases.map((lease) => lease.devices[0]?.id)).toEqual(['cuda:0', 'cuda:0', 'cuda:0']);
  const next = await ask({ bytes: 1, share: true });
  expect(next.devices[0]?.id).toBe('cuda:1');
  const reserved = await store.leasing.list();
  const on = (uuid: string) => reserved.filter(({ devices }) => devices.some((one) => one.uuid === uuid));
  expect(['GPU-0', 'GPU-1'].map((uuid) => reservedBy(on(uuid), 80 * GIB).reserved_bytes)).toEqual([80 * GIB, 1]);
});

test('memory of strangers counts as taken, and is named by pid and process', async () => {
  const busy = [gpu(0, 60 * GIB)];
  expect(await waits({ devices: busy, bytes: 30 * GIB, share: true })).toBe(
    'waits for 30 GiB of a device: cuda:0 of 80 GiB: 60 GiB are used by blender (pid 4242)',
  );
  expect(await waits({ devices: busy })).toContain('blender (pid 4242)');
  const small = await ask({ devices: busy, bytes: 20 * GIB, share: true });
  await small.release();
  const enough = await ask({ devices: busy, needBytes: 16 * GIB }); // whole, but asks for no more than is free
  await enough.release();
});

test('who is lenient waits for leases only, and takes the device that strangers leave most of', async () => {
  const devices = [gpu(0, 60 * GIB), gpu(1, 20 * GIB)];
  const whole = await ask({ devices, lenient: true });
  expect([whole.devices[0]?.id, whole.foreign]).toEqual(['cuda:1', [20 * GIB]]);
  // Less than half is left of the other: it waits for the one that gives more in the end
  expect(await waits({ devices, lenient: true })).toContain('most of it is used by blender');
  expect(await waits({ devices: [gpu(0, 60 * GIB)], lenient: true })).toBeNull();
  await whole.release();
  const shared = await ask({ devices: [gpu(1, 20 * GIB)], bytes: 50 * GIB, share: true, lenient: true });
  expect(await waits({ devices: [gpu(1, 20 * GIB)], bytes: 20 * GIB, share: true, lenient: true })).toContain(
    'holds 50 GiB',
  );
  const rest = await ask({ devices: [gpu(1, 20 * GIB)], bytes: 10 * GIB, share: true, lenient: true });
  for (const lease of [shared, rest]) await lease.release();
  const both = await ask({ devices, count: 2, lenient: true });
  expect([both.devices.map(({ id }) => id), both.foreign]).toEqual([
    ['cuda:1', 'cuda:0'],
    [20 * GIB, 60 * GIB],
  ]);
  await both.release();
});

test('a job that has no lease here is a stranger, and one that has is not counted twice', async () => {
  const lease = await ask({ owner: 'j-leased22', devices: [gpu(0)], bytes: 30 * GIB, share: true });
  const process = { pid: 7, name: 'python3', used_bytes: 30 * GIB, ours: true };
  const held = (job: string) => [{ ...gpu(0), used_bytes: 30 * GIB, processes: [{ ...process, job }] }];
  const next = await ask({ devices: held('j-leased22'), bytes: 50 * GIB, share: true });
  await next.release();
  expect(await waits({ devices: held('j-another2'), bytes: 50 * GIB, share: true })).toContain('30 GiB are used by');
  await lease.release();
});

test('one that cannot be written to its file holds, and says so in the log, not by a warning of Node', async () => {
  const taken = join(home, 'leases', 'j-unkept22.json', 'in-the-way');
  mkdirSync(taken, { recursive: true });
  const warnings: Error[] = [];
  const heard = (warning: Error): unknown => warnings.push(warning);
  process.on('warning', heard);
  const lease = await ask({ owner: 'j-unkept22', devices: [gpu(0)], bytes: GIB });
  await new Promise((resolve) => setTimeout(resolve, 50));
  process.off('warning', heard);
  rmSync(join(home, 'leases', 'j-unkept22.json'), { recursive: true });
  expect([lease.devices.map(({ id }) => id), warnings]).toEqual([['cuda:0'], []]);
  await lease.release();
});

test('those who share a device know of one another, those on others do not', async () => {
  const first = await ask({ owner: 'j-first222', devices: [gpu(0)], bytes: GIB, share: true });
  const other = await ask({ devices: [gpu(1)], bytes: GIB, share: true });
  expect([await first.beside(), await other.beside()]).toEqual([[], []]);
  const second = await ask({ owner: 'j-second22', devices: [gpu(0)], bytes: GIB, share: true });
  await second.release();
  expect(await first.beside()).toEqual(['j-second22']);
  const third = await ask({ devices: [gpu(0)], bytes: GIB, share: true });
  expect(await third.beside()).toEqual(['j-first222']);
  expect(await other.beside()).toEqual([]);
  for (const lease of [first, other, third]) await lease.release();
});

test('a waiter sees the device as it is now: it starts when the stranger leaves', async () => {
  let foreign = 60 * GIB;
  const reasons: string[] = [];
  const asked = ask({
    devices: [gpu(0, foreign)],
    refresh: async () => [gpu(0, foreign)],
    onWait: (reason) => reasons.push(reason),
  });
  await until(() => reasons.length > 0);
  foreign = 0;
  const lease = await asked;
  expect(reasons[0]).toContain('60 GiB');
  await lease.release();
});

test('what can never be is refused at once', async () => {
  expect((await failure(ask({ count: 3 }))).code).toBe('OOMTUNE_DEVICE_MISSING');
  expect((await failure(ask({ bytes: 81 * GIB }))).message).toContain('81 GiB');
});

test('several devices are had at once or not at all', async () => {
  const one = await ask({ devices: [gpu(0)] });
  expect(await waits({ count: 2 })).toContain('2 devices');
  expect(await store.leasing.list()).toHaveLength(1);
  await one.release();
  const both = await ask({ count: 2 });
  expect(both.devices.map((device) => device.id).sort()).toEqual(['cuda:0', 'cuda:1']);
});

test('jobs of two devices each never block one another, and of many processes none breaks a promise', async () => {
  // Each process takes and gives leases of all kinds, and counts in Redis what is really held while it holds it
  const source = `
    const { openStore, newJobId } = await import(DIST + '/store/index.js');
    const store = await openStore({ leaseTimes: { reserveAfterMs: 200, lookMs: 50 } });
    const { redis } = store.connection;
    const GIB = 2 ** 30;
    const gpu = (n) => ({ id: 'cuda:' + n, uuid: 'GPU-' + n, total_bytes: 80 * GIB, used_bytes: 0, processes: [] });
    const broken = [];
    for (let round = 0; round < 25; round += 1) {
      const kind = Math.random();
      const bytes = kind < 0.5 ? Math.ceil(Math.random() * 60) * GIB : null;
      const count = 1 + Math.floor(Math.random() * 3);
      const lease = await store.leasing.acquire({ owner: newJobId(), devices: [gpu(0), gpu(1), gpu(2)], count, bytes,
        share: bytes !== null, signal: new AbortController().signal, onWait: () => {} });
      if (lease.devices.length !== count) broken.push('count');
      for (const { uuid } of lease.devices) {
        const held = await redis.incrby('held:' + uuid, (bytes ?? 80 * GIB) / GIB);
        if (held > 80) broken.push(uuid + ' holds ' + held);
      }
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10));
      for (const { uuid } of lease.devices) await redis.decrby('held:' + uuid, (bytes ?? 80 * GIB) / GIB);
      await lease.release();
    }
    say(JSON.stringify(broken));
    await store.close();`;
  const results = await Promise.all(Array.from({ length: 8 }, () => script(source).next()));
  expect(results).toEqual(Array(8).fill('[]'));
  expect(await store.leasing.list()).toEqual([]);
  expect(await store.connection.redis.hlen(store.keys.leaseQueue)).toBe(0);
});

test('who waits for many devices is not starved by those who want one', async () => {
  const small = await ask({ devices: [gpu(0), gpu(1)] });
  let granted = false;
  const big = ask({ count: 2 }).then((lease) => {
    granted = true;
    return lease;
  });
  await new Promise((resolve) => setTimeout(resolve, 500)); // longer than our patience
  expect(await waits({ devices: [gpu(0), gpu(1)] })).toContain('has waited longer');
  expect(granted).toBe(false);
  await small.release();
  await (await big).release();
});

test('who is put back for another host to try, again and again, is not starved by those who want one', async () => {
  const first = await ask({ devices: [gpu(0)] });
  const both = { owner: newJobId(), count: 2 };
  const controller = new AbortController();
  const waitingSince = Date.now() - 1000;
  const asked = ask({ ...both, waitingSince, signal: controller.signal }).catch(() => null);
  await until(async () => (await store.connection.redis.hexists(store.keys.leaseQueue, both.owner)) === 1);
  expect(await waits({ devices: [gpu(1)] })).toContain(`${both.owner} has waited longer for it`);
  expect(await waits({ devices: [gpu(1)], waitingSince: waitingSince - 1 })).toBeNull();
  await first.release();
  expect((await asked)?.devices).toHaveLength(2);
});

test('who waits with a higher priority goes first at once, if he could start', async () => {
  const held = await ask({ devices: [gpu(0)], bytes: 30 * GIB, share: true });
  const whole = new AbortController();
  const first = ask({ devices: [gpu(0)], priority: 5, signal: whole.signal });
  await until(async () => (await store.connection.redis.hlen(store.keys.leaseQueue)) === 1);
  const small = { devices: [gpu(0)], bytes: GIB, share: true };
  expect(await waits(small)).toContain('has a higher priority');
  expect(await waits({ ...small, priority: 6 })).toBeNull();
  expect(await waits({ ...small, devices: [gpu(0, 20 * GIB)] })).toContain('has a higher priority');
  whole.abort(new Error('no longer'));
  await failure(first);
  const never = new AbortController();
  const blind = ask({ devices: [gpu(0, 20 * GIB)], priority: 5, signal: never.signal });
  await until(async () => (await store.connection.redis.hlen(store.keys.leaseQueue)) === 1);
  expect(await waits({ ...small, devices: [gpu(0, 20 * GIB)] })).toBeNull();
  never.abort(new Error('no longer'));
  await failure(blind);
  await held.release();
});

test('an abort leaves no trace, neither lease nor place in the queue', async () => {
  const held = await ask({ count: 2 });
  const controller = new AbortController();
  const asked = ask({ signal: controller.signal });
  await until(async () => (await store.connection.redis.hlen(store.keys.leaseQueue)) === 1);
  controller.abort(new Error('no longer'));
  expect((await failure(asked)).message).toBe('no longer');
  await until(async () => (await store.connection.redis.hlen(store.keys.leaseQueue)) === 0);
  await held.release();
  expect(await store.leasing.list()).toEqual([]);
});

test('a lease shrinks for others to come in, and grows only where there is room', async () => {
  const first = await ask({ devices: [gpu(0)], bytes: 60 * GIB, share: true });
  const asked = ask({ devices: [gpu(0)], bytes: 50 * GIB, share: true });
  await first.resize(30 * GIB);
  const second = await asked;
  expect((await failure(first.resize(60 * GIB))).code).toBe('OOMTUNE_LEASE_LOST');
  await second.release();
  await first.resize(60 * GIB);
  await first.release();
  expect((await failure(first.resize(1))).code).toBe('OOMTUNE_LEASE_LOST');
});

const HOLDER = `
  const { openStore } = await import(DIST + '/store/index.js');
  const store = await openStore();
  const gpu = { id: 'cuda:0', uuid: 'GPU-0', total_bytes: 80 * 2 ** 30, used_bytes: 0, processes: [] };
  const lease = await store.leasing.acquire({ owner: 'j-crasher2', devices: [gpu], count: 1, bytes: null, share: false,
    signal: new AbortController().signal, onWait: () => {} });
  say('held');
  setInterval(() => {}, 1000);`;

test('the lease of a killed owner is freed, and who waits for it goes on', async () => {
  const holder = script(HOLDER);
  await holder.next();
  const asked = ask({ devices: [gpu(0)] });
  holder.child.kill('SIGKILL');
  await (await asked).release();
});

test('it is no company for who shares the device after it', async () => {
  const holder = script(HOLDER.replace('bytes: null, share: false', 'bytes: 2 ** 30, share: true'));
  await holder.next();
  holder.child.kill('SIGKILL');
  await holder.lines;
  const lease = await ask({ devices: [gpu(0)], bytes: GIB, share: true });
  expect(await lease.beside()).toEqual([]);
  expect((await store.leasing.list()).map(({ owner }) => owner)).not.toContain('j-crasher2');
});

test('it is kept while a process of the job lives, even one that left its session', async () => {
  const holder = script(HOLDER);
  await holder.next();
  const grandchild = spawn('setsid', ['sleep', '60'], {
    env: { PATH: process.env.PATH, OOMTUNE_JOB_ID: 'j-crasher2' },
    stdio: 'ignore',
  });
  holder.child.kill('SIGKILL');
  await holder.lines;
  expect(await store.leasing.reap([])).toEqual([]);
  expect(await store.leasing.list()).toHaveLength(1);
  grandchild.kill('SIGKILL');
  await until(async () => (await store.leasing.reap([])).length === 1);
});

test('it is kept while its memory is not back', async () => {
  const holder = script(HOLDER);
  await holder.next();
  const pid = holder.child.pid as number;
  holder.child.kill('SIGKILL');
  await holder.lines;
  const leaking = { ...gpu(0), used_bytes: GIB, processes: [{ pid, name: '', used_bytes: GIB, ours: true }] };
  expect(await store.leasing.reap([leaking])).toEqual([]);
  expect(await store.leasing.reap([gpu(0)])).toEqual(['j-crasher2']);
});

test('a pid that was given to another process does not keep a lease', async () => {
  const lease = await ask({ owner: 'j-reused22', devices: [gpu(0)] });
  const [record] = await store.leasing.list();
  const text = (record?.text ?? '').replace(/"start":"\d+"/, '"start":"1"');
  await store.connection.redis.hset(store.keys.leases, 'j-reused22', text);
  expect(await store.leasing.reap([])).toEqual(['j-reused22']);
  await lease.release();
});

test('a living owner keeps his lease however late its renewal is', async () => {
  const short = await openStore({ leaseTimes: { ttlMs: 1 } });
  const lease = await short.leasing.acquire({
    owner: 'j-slow2222',
    devices: [gpu(0)],
    count: 1,
    bytes: null,
    share: false,
    signal: never,
    onWait: () => {},
  });
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(await store.leasing.reap([])).toEqual([]);
  expect(await waits({ devices: [gpu(0)] })).toContain('j-slow2222 holds all');
  await lease.release();
  await short.close();
});

test('what a living owner had released, and an older state of Redis brings back, is freed', async () => {
  const lease = await ask({ owner: 'j-older222', devices: [gpu(0)] });
  const [record] = await store.leasing.list();
  expect(await store.leasing.reap([])).toEqual([]);
  await lease.release();
  await store.connection.redis.hset(store.keys.leases, 'j-older222', record?.text ?? '');
  expect(await store.leasing.reap([])).toEqual(['j-older222']);
  expect(await store.leasing.list()).toEqual([]);
});

test('the next process of the same job takes over its lease, though others wait for it', async () => {
  const holder = script(HOLDER);
  await holder.next();
  const other = new AbortController();
  const waiting = ask({ devices: [gpu(0)], signal: other.signal });
  waiting.catch(() => {});
  const taken = await ask({ owner: 'j-crasher2', devices: [gpu(0), gpu(1)] });
  expect(taken.devices.map((device) => device.id)).toEqual(['cuda:0']);
  holder.child.kill('SIGKILL');
  await holder.lines;
  expect(await store.leasing.reap([])).toEqual([]);
  other.abort();
  await taken.release();
});

test('a garbled lease does not stop anybody, and is set aside', async () => {
  const { redis } = store.connection;
  await redis.hset(store.keys.leases, {
    a: 'no json',
    b: '{}',
    c: '[1]',
    d: '{"devices":{"x":1},"expires_at":"soon"}',
  });
  await redis.hset(store.keys.leaseQueue, { a: '{{{' });
  await (await ask({ count: 2 })).release();
  expect(await redis.hlen(store.keys.leases)).toBe(0);
  expect(await redis.llen(store.keys.refused)).toBe(5);
});
