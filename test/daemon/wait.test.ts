import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { showLogs } from '../../src/cli/verbs/logs.js';
import type { JobRecord } from '../../src/contract/job.js';
import { cancelJob, waitForJobs } from '../../src/daemon/index.js';
import { failure, until } from '../store/home.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const forEver = new AbortController().signal;

test('who waits for jobs is woken when the last has ended', async () => {
  await host.start();
  const store = await host.store();
  const ids = [await host.shell('true'), await host.shell('sleep 1; exit 9')];
  const jobs = await waitForJobs(store, ids, forEver);
  expect(jobs.map((job) => job.state)).toEqual(['succeeded', 'failed']);
  expect((await failure(waitForJobs(store, ['j-zzzzzzz9'], forEver))).code).toBe('OOMTUNE_NO_SUCH_JOB');
});

test('who waits is told of each job when it ends, and has them in the order asked for', async () => {
  await host.start();
  const last = await host.shell('until [ -e go ]; do sleep 0.05; done');
  const ids = [last, await host.shell('true'), await host.shell('exit 3')];
  const told: JobRecord[] = [];
  const waits = waitForJobs(await host.store(), ids, forEver, (job) => {
    told.push(job);
    if (told.length === 2) writeFileSync(join(host.work, 'go'), ''); // only now can the last one end
  });
  expect((await waits).map((job) => job.job)).toEqual(ids);
  expect(told).toHaveLength(3);
  expect(told.at(-1)?.job).toBe(last);
});

test('who waits asks nothing of Redis until an end is announced', async () => {
  const store = await host.store();
  const ids = [await host.shell('true'), await host.shell('true')]; // there is no daemon: nobody else reads them
  const reads = async () =>
    Number(/cmdstat_hgetall:calls=(\d+)/.exec(await store.connection.redis.info('commandstats'))?.[1] ?? 0);
  const waits = waitForJobs(store, ids, forEver);
  await sleep(500);
  const before = await reads();
  expect(before).toBeGreaterThan(0);
  await sleep(3000);
  expect(await reads()).toBe(before);
  for (const id of ids) await cancelJob(store, id);
  expect((await waits).map((job) => job.state)).toEqual(['cancelled', 'cancelled']);
});

test('who waits is told once why a job does not start', async () => {
  const store = await host.store();
  const ids = [await host.shell('true'), await host.shell('true')]; // there is no daemon
  for (const [at, reason] of ['waits for room', null].entries()) await store.jobs.patch(ids[at] as string, { reason });
  const told: string[] = [];
  const waits = waitForJobs(store, ids, forEver, undefined, ({ job, reason }) => told.push(`${job} ${reason}`));
  await until(async () => told.length > 0);
  for (const id of ids) await cancelJob(store, id);
  await waits;
  expect(told).toEqual([`${ids[0]} waits for room`]);
});

test('an end that nobody could hear of is found when the connection is back', async () => {
  const store = await host.store();
  const id = await host.shell('true');
  const waits = waitForJobs(store, [id], forEver);
  await sleep(300);
  const { redis } = store.connection;
  // In one step: cut, and ended before anybody can listen again
  await redis.multi().call('CLIENT', 'KILL', 'TYPE', 'pubsub').hset(store.keys.job(id), 'state', 'cancelled').exec();
  expect((await waits)[0]?.state).toBe('cancelled');
});

test('who waits can be told to stop', async () => {
  const controller = new AbortController();
  const waits = waitForJobs(await host.store(), [await host.shell('true')], controller.signal);
  await sleep(200);
  controller.abort(new Error('enough'));
  await expect(waits).rejects.toThrow('enough');
});

test('who waits for a job that Redis loses and its host writes back is told how it ends', async () => {
  const daemon = await host.start();
  const id = await host.shell('sleep 4; exit 9');
  await host.state(id, 'running');
  const store = await host.store();
  const waits = waitForJobs(store, [id], forEver);
  waits.catch(() => {});
  await sleep(300);
  daemon.kill('SIGSTOP'); // it writes it back a moment later than the one who waits looks
  await store.connection.redis.flushall();
  await store.connection.redis.client('KILL', 'TYPE', 'pubsub');
  await sleep(2000);
  expect((await store.jobs.find(id)).is).toBe('missing');
  daemon.kill('SIGCONT');
  expect((await waits).map(({ state, exit_code }) => [state, exit_code])).toEqual([['failed', 9]]);
});

test('who waits for a job that Redis has lost for good, or follows its log, is told so', async () => {
  const store = await host.store();
  const id = await host.shell('true'); // there is no daemon
  const job = await host.job(id);
  const nowhere = { lines: null, launch: null, terminal: false, write: () => {}, note: () => {} };
  const follows = failure(showLogs(store, [job], { follow: true, signal: forEver, ...nowhere }));
  const away = failure(showLogs(store, [{ ...job, host: 'another' }], { follow: true, signal: forEver, ...nowhere }));
  const waits = failure(waitForJobs(store, [id], forEver));
  await sleep(300);
  await store.connection.redis.flushall();
  const codes = (await Promise.all([follows, away, waits])).map(({ code }) => code);
  expect(codes).toEqual(Array(3).fill('OOMTUNE_NO_SUCH_JOB'));
});
