import { Queue } from 'bullmq';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { labelFor } from '../../src/daemon/routing.js';
import { until } from '../store/home.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

test('hostile records are refused, logged and left alone, and the daemon goes on', async () => {
  await host.start({ sweepMs: 300, cancelLookMs: 200 });
  const store = await host.store();
  const { redis } = store.connection;
  const { keys } = store;
  const template = await redis.hgetall(keys.job(await host.shell('true')));
  const options = JSON.parse(template.options as string);
  const hostile: Record<string, string>[] = [
    { command: '"touch hacked"' },
    { command: '[]' },
    { command: '["/bin/sh\\u0000","-c","touch hacked"]' },
    { options: JSON.stringify({ ...options, cwd: '../../etc' }) },
    { options: JSON.stringify({ ...options, env: ['LD_PRELOAD=/tmp/evil.so'] }) },
    { options: JSON.stringify({ ...options, after: ['*'] }) },
    { options: JSON.stringify({ ...options, gpus: 1e9 }) },
    { options: JSON.stringify({ ...options, host: { $gt: '' } }) },
    { launches: JSON.stringify([{ launch: 1, dir: '../../../etc', purpose: 'run', config: null }]) },
    { journal: '[{"micro_batch":"1"}]' },
    { state: 'RUNNING' },
    { epoch: 'NaN', command: '{' },
    { __proto__x: '{"polluted":true}', job: '"j-liar2222"' },
  ];
  for (const [at, changes] of hostile.entries()) {
    const id = `j-evil${String.fromCharCode(97 + at)}222`;
    await redis.hset(keys.job(id), { ...template, job: JSON.stringify(id), state: 'queued', ...changes });
    for (const index of [keys.jobs, keys.live]) await redis.zadd(index, Date.now(), id);
    await redis.sadd(keys.pending, id);
  }
  await redis.sadd(keys.pending, '', 'j-nothing2', '../../x');
  await redis.zadd(keys.live, 1, 'j-nothing2', 2, '__proto__');
  await redis.hset(keys.labels, {
    cpu: 'no json',
    'cpu-evil-00000000': '{"kind":"cpu","gpus":1,"model":null,"host":null,"device":null,"gib":0}',
    x: '{}',
  });
  await redis.set(keys.host('ghost'), '{{{');
  await redis.zadd(keys.hosts, 1, 'ghost');
  await redis.hset(keys.leases, 'ghost', '{"devices":5}');
  await store.events.wake('submit', 'j-evila222');
  await redis.publish(keys.wake, '\u0000 garbage ✓ of all kinds');
  const good = await host.shell('true');
  await host.state(good, 'succeeded');
  // What has no record at all is taken out of the indexes; what cannot be used stays, is told, and nothing is done with it
  await until(async () => (await redis.scard(keys.pending)) === hostile.length);
  expect((await store.jobs.unreadable()).map(({ job }) => job).sort()).toEqual(
    hostile.map((_, at) => `j-evil${String.fromCharCode(97 + at)}222`),
  );
  expect(host.lines('hacked')).toEqual([]);
  expect(await redis.llen(keys.refused)).toBeGreaterThanOrEqual(hostile.length);
  expect(host.said).toContain('a record in Redis was refused');
  expect((await store.jobs.list()).map((job) => job.job)).toContain(good);
  await host.state(await host.shell('true'), 'succeeded');
  expect(host.daemon?.exitCode).toBeNull();
});

test('hostile entries in a queue run nothing and are taken out of it', async () => {
  await host.start({ sweepMs: 500 });
  const store = await host.store();
  await host.state(await host.shell('true'), 'succeeded');
  const ended = (await store.jobs.latest())?.job as string;
  const connection = store.connection.another();
  const label = labelFor(await host.job(ended));
  const queue = new Queue(label, { connection, prefix: store.keys.prefix });
  const entries: unknown[] = [
    { job: 'j-nothing2', epoch: 1 },
    { job: ended, epoch: 1 },
    { job: ended, epoch: 7 },
    { job: '../../etc', epoch: 1 },
    { job: ended },
    { command: ['/bin/sh', '-c', 'touch hacked'] },
    null,
    'j-nothing2',
    [],
    { job: { toString: 'x' }, epoch: {} },
  ];
  for (const [at, data] of entries.entries())
    await queue.add('job', data, { jobId: `x-${at}`, attempts: 5, priority: 1 });
  // and one whose data is not even JSON
  await store.connection.redis.hset(`${store.keys.prefix}:${label}:x-0`, 'data', '{not json');
  await store.events.wake('submit');
  const good = await host.shell('true');
  await host.state(good, 'succeeded');
  await until(async () => (await queue.getJobCountByTypes('prioritized', 'wait', 'active', 'delayed', 'failed')) === 0);
  expect(host.starts(ended)).toBe(1);
  expect(host.lines('hacked')).toEqual([]);
  await queue.close();
});
