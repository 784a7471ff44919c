import { afterEach, beforeEach, expect, test } from 'vitest';
import { cancelJob, editJob, holdJob, releaseJob, retryJob } from '../../src/daemon/index.js';
import { failure, latestEvents, script, until } from '../store/home.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const cancel = async (id: string) => cancelJob(await host.store(), id);

test('cancelled before a daemon sees it, a job never starts', async () => {
  const id = await host.shell('true');
  expect(await cancel(id)).toBe('cancelled');
  await host.start();
  const after = await host.shell('true');
  await host.state(after, 'succeeded');
  expect((await host.job(id)).state).toBe('cancelled');
  expect(host.starts(id)).toBe(0);
});

test('cancelled in its queue, on hold, or while it waits for another, a job never starts', async () => {
  await host.start({ cpuLanes: 1 });
  const first = await host.shell('sleep 2');
  await host.state(first, 'running');
  const queued = await host.shell('true');
  const held = await host.shell('true');
  await holdJob(await host.store(), held);
  const dependent = await host.shell('true', { after: [first] });
  await until(async () => (await host.job(dependent)).reason?.includes('to succeed') === true);
  for (const id of [queued, held, dependent]) expect(await cancel(id)).toBe('cancelled');
  await host.state(first, 'succeeded');
  const last = await host.shell('true');
  await host.state(last, 'succeeded');
  expect([queued, held, dependent].map((id) => host.starts(id))).toEqual([0, 0, 0]);
  expect(await host.leftOver()).toEqual([]);
});

test('cancelled while it waits for its lease, a job never starts and leaves no place in the queue', async () => {
  await host.start();
  const store = await host.store();
  const [total] = [
    (await store.hosts.list())[0]?.info?.devices.find((device) => device.id === 'cpu')?.total_bytes as number,
  ];
  const big = await host.shell('sleep 60', { budget: `${Math.floor(total * 0.6)}B` });
  await host.state(big, 'running');
  const waiting = await host.shell('true', { budget: `${Math.floor(total * 0.6)}B` });
  await until(async () => (await host.job(waiting)).reason?.includes(`${big} holds`) === true);
  await cancel(waiting);
  await host.state(waiting, 'cancelled', 2);
  await cancel(big);
  await host.state(big, 'cancelled', 15);
  expect(host.starts(waiting)).toBe(0);
  expect(await host.leftOver()).toEqual([]);
});

test('cancelled while it runs, a job ends with its whole tree', async () => {
  await host.start();
  const id = await host.shell('setsid sleep 300 & sleep 300');
  await host.state(id, 'running');
  await until(() => host.starts(id) === 1);
  expect(await cancel(id)).toBe('running');
  expect(await host.state(id, 'cancelled', 15)).toMatchObject({ exit_code: null });
  expect(await host.leftOver()).toEqual([]);
  expect(host.starts(id)).toBe(1);
});

test('the wish to cancel outlives the daemon that should have heard it', async () => {
  await host.start();
  const id = await host.shell('sleep 300');
  await host.state(id, 'running');
  await host.kill();
  await cancel(id);
  expect((await host.job(id)).reason).toContain('cancelled by the user');
  await host.start();
  await host.state(id, 'cancelled', 15);
  expect(host.starts(id)).toBe(1);
  expect(await host.leftOver()).toEqual([]);
});

test('an adopted run can be cancelled', async () => {
  await host.start();
  const id = await host.shell('sleep 300');
  await host.state(id, 'running');
  await host.kill();
  await host.start();
  await cancel(id);
  await host.state(id, 'cancelled', 15);
  expect(await host.leftOver()).toEqual([]);
});

test('a wake that is lost does not keep a job from being cancelled', async () => {
  await host.start({ cancelLookMs: 200 });
  const id = await host.shell('sleep 300');
  await host.state(id, 'running');
  const { redis } = (await host.store()).connection;
  await redis.hset((await host.store()).keys.job(id), 'cancel', new Date().toISOString()); // the key alone, nothing published
  await host.state(id, 'cancelled', 15);
});

test('cancelled over and over, from several processes at once, a job ends once', async () => {
  await host.start();
  const id = await host.shell('sleep 300');
  await host.state(id, 'running');
  const source = `
    const { openStore } = await import(DIST + '/store/index.js');
    const { cancelJob } = await import(DIST + '/daemon/index.js');
    const store = await openStore();
    for (let n = 0; n < 20; n += 1) await cancelJob(store, '${id}');
    say('done');
    await store.close();`;
  await Promise.all(Array.from({ length: 4 }, () => script(source).next()));
  await host.state(id, 'cancelled', 15);
  const ends = (await latestEvents(await host.store(), 100)).filter((event) => event.state === 'cancelled');
  expect(ends).toHaveLength(1);
});

test('a held job does not start until it is released; one that runs cannot be held', async () => {
  const store = await host.store();
  const id = await host.shell('sleep 1');
  await holdJob(store, id);
  await host.start();
  const other = await host.shell('true');
  await host.state(other, 'succeeded');
  expect(await host.job(id)).toMatchObject({ state: 'held', reason: 'on hold until it is released' });
  await releaseJob(store, id);
  await host.state(id, 'running');
  expect((await failure(holdJob(store, id))).code).toBe('OOMTUNE_USAGE');
  await host.state(id, 'succeeded');
  expect((await failure(releaseJob(store, id))).code).toBe('OOMTUNE_USAGE');
  expect(host.starts(id)).toBe(1);
});

test('held and released many times while daemons look, a job starts once', async () => {
  await host.start({ cpuLanes: 1 });
  const blocker = await host.shell('sleep 3');
  const store = await host.store();
  await host.state(blocker, 'running');
  const id = await host.shell('true');
  for (let n = 0; n < 25; n += 1) {
    await holdJob(store, id);
    await releaseJob(store, id);
  }
  await host.state(id, 'succeeded');
  await sleep(500);
  expect(host.starts(id)).toBe(1);
  expect(await host.leftOver()).toEqual([]);
});

test('--after waits for success, and says what it waits for; a job whose way is barred fails with the reason', async () => {
  await host.start();
  const first = await host.shell('sleep 1; echo first >> order');
  const second = await host.shell('echo second >> order', { after: [first] });
  const third = await host.shell('echo third >> order', { after: [first, second] });
  await until(async () => (await host.job(third)).reason?.includes(second) === true);
  expect((await host.job(second)).reason).toMatch(new RegExp(`^waits for ${first} \\((queued|running)\\) to succeed$`));
  await host.state(third, 'succeeded');
  expect(host.lines('order')).toEqual(['first', 'second', 'third']);
  const bad = await host.shell('exit 1');
  const barred = await host.shell('true', { after: [bad] });
  const behind = await host.shell('true', { after: [barred] });
  expect(await host.state(barred, 'failed')).toMatchObject({
    reason: `${bad}, which it was to come after, ended as failed`,
    failure: { fields: { advice: expect.stringContaining(`\`oomtune retry ${bad}\` first and then this one`) } },
  });
  await host.state(behind, 'failed');
  expect([host.starts(barred), host.starts(behind)]).toEqual([0, 0]);
  expect((await failure(host.shell('true', { after: ['j-zzzzzzz9'] }))).code).toBe('OOMTUNE_NO_SUCH_JOB');
});

test('those of higher priority go first, and equals in the order submitted', async () => {
  const names = ['a', 'b', 'c', 'd', 'e'];
  const priorities = [0, -5, 7, 0, 1_000_000];
  const ids: string[] = [];
  for (const [at, name] of names.entries())
    ids.push(await host.shell(`echo ${name} >> order`, { priority: priorities[at] }));
  await host.start({ cpuLanes: 1 });
  for (const id of ids) await host.state(id, 'succeeded');
  expect(host.lines('order')).toEqual(['e', 'c', 'a', 'd', 'b']);
});

test('the priority of a job that waits can be changed, also while it waits for its lease; not of one that runs', async () => {
  await host.start({ cpuLanes: 1 });
  const first = await host.shell('sleep 3; echo first >> order');
  await host.state(first, 'running');
  const ids = [];
  for (const name of ['a', 'b', 'c']) ids.push(await host.shell(`echo ${name} >> order`));
  const [a, b, c] = ids as [string, string, string];
  const store = await host.store();
  await editJob(store, c, { priority: 5 });
  await holdJob(store, b);
  await editJob(store, b, { priority: 9, timeSeconds: 60 });
  await releaseJob(store, b);
  await editJob(store, a, { priority: -1 });
  expect(await failure(editJob(store, first, { priority: 1 }))).toMatchObject({ code: 'OOMTUNE_USAGE' });
  for (const id of [first, ...ids]) await host.state(id, 'succeeded');
  expect(host.lines('order')).toEqual(['first', 'b', 'c', 'a']);
  expect((await host.job(b)).options).toMatchObject({ priority: 9, timeSeconds: 60 });
  expect(await failure(editJob(store, b, { priority: 1 }))).toMatchObject({ code: 'OOMTUNE_USAGE' });
  expect(await host.leftOver()).toEqual([]);
});

test('--after-any waits for the end, however that was', async () => {
  await host.start();
  const fails = await host.shell('sleep 1; exit 3');
  const next = await host.shell('echo next >> order', { afterAny: [fails] });
  const never = await host.shell('true', { after: [fails], afterAny: [fails] });
  await until(async () => / to end$/.test((await host.job(next)).reason ?? ''));
  await host.state(fails, 'failed');
  await host.state(next, 'succeeded');
  await host.state(never, 'failed');
  await host.state(await host.shell('true', { afterAny: [fails] }), 'succeeded');
});

test('a job that waits for its lease makes way for one of higher priority', async () => {
  await host.start();
  const store = await host.store();
  const total = (await store.hosts.list())[0]?.info?.devices.find((device) => device.id === 'cpu')
    ?.total_bytes as number;
  const budget = `${Math.floor(total * 0.6)}B`;
  const first = await host.shell('sleep 2', { budget });
  await host.state(first, 'running');
  const low = await host.shell('echo low >> order', { budget });
  await until(async () => (await host.job(low)).reason?.includes('holds') === true);
  const high = await host.shell('echo high >> order', { budget, priority: 5 });
  for (const id of [low, high]) await host.state(id, 'succeeded', 30);
  expect(host.lines('order')).toEqual(['high', 'low']);
});

test('a time limit ends a job as timeout', async () => {
  await host.start();
  const id = await host.shell('sleep 300', { timeoutSeconds: 1 });
  expect(await host.state(id, 'timeout')).toMatchObject({ exit_code: null, failure: { class: 'timeout' } });
  expect(await host.leftOver()).toEqual([]);
});

test('a retry runs it again from the start, with a log of its own', async () => {
  await host.start();
  const store = await host.store();
  const id = await host.shell('test -e again || { touch again; echo first; exit 4; }; echo second');
  expect(await host.state(id, 'failed')).toMatchObject({ exit_code: 4 });
  expect((await retryJob(store, id)).state).toBe('queued');
  const job = await host.state(id, 'succeeded');
  expect(host.starts(id)).toBe(2);
  expect(job.launches).toHaveLength(1);
  const running = await host.shell('sleep 60');
  await host.state(running, 'running');
  expect((await failure(retryJob(store, running))).code).toBe('OOMTUNE_USAGE');
  expect((await failure(retryJob(store, 'j-zzzzzzz9'))).code).toBe('OOMTUNE_NO_SUCH_JOB');
});

test('every waiting job says why it waits', async () => {
  const store = await host.store();
  const early = await host.shell('true', { device: 'cuda', gpus: 4, gpuModel: 'H200' });
  expect((await host.job(early)).reason).toBe('waits for a daemon');
  await host.start({ cpuLanes: 1, sweepMs: 300 });
  await until(async () => (await host.job(early)).reason?.startsWith('no host has 4 GPUs of model "h200"') === true);
  const first = await host.shell('sleep 60');
  await host.state(first, 'running');
  const second = await host.shell('true');
  await until(async () => (await host.job(second)).reason?.startsWith('waits in its queue for') === true);
  const live = (await store.jobs.list()).filter((job) => job.state === 'queued' || job.state === 'held');
  expect(live.map((job) => job.reason)).not.toContain(null);
});

test('a command that is not there fails with its name, and the daemon goes on', async () => {
  await host.start();
  const id = await host.submit(['/no/such/program']);
  const job = await host.state(id, 'failed');
  expect(job.failure).toMatchObject({ class: 'user_error', fields: { code: 'OOMTUNE_COMMAND_MISSING' } });
  expect(job.reason).toContain('/no/such/program');
  await host.state(await host.shell('true'), 'succeeded');
  expect(await host.leftOver()).toEqual([]);
});
