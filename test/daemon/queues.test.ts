import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { labelFor } from '../../src/daemon/routing.js';
import { until } from '../store/home.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const ofQueues = async (): Promise<string[]> => {
  const { connection, keys } = await host.store();
  return [...(await connection.redis.keys(`${keys.prefix}:cpu*`)), ...(await connection.redis.hkeys(keys.labels))];
};
const connections = async (): Promise<number> => {
  const { connection } = await host.store();
  return String(await connection.redis.client('LIST')).split('\n').length;
};
/** Each owner has queues of its own. */
const submitAs = (owner: string, line = 'true'): Promise<string> => {
  host.owner = owner;
  return host.shell(line);
};

test('queues that nothing is in any more are closed and removed, and made again for the next job', async () => {
  await host.start({ sweepMs: 300, emptyQueueMs: 1000 });
  const before = await connections();
  const end = join(host.work, 'end');
  const long = await submitAs('long', `until [ -e ${end} ]; do sleep 0.1; done`);
  await host.state(long, 'running');
  const owners = Array.from({ length: 12 }, (_, at) => `user-${at}`);
  for (const id of await Promise.all(owners.map((owner) => submitAs(owner)))) await host.state(id, 'succeeded');
  const label = labelFor(await host.job(long));
  await until(async () => (await ofQueues()).every((name) => name.includes(label)));
  expect(await ofQueues()).toContain(label);
  await until(async () => (await connections()) < before + 4);
  expect((await host.job(long)).state).toBe('running');
  writeFileSync(end, '');
  await host.state(long, 'succeeded');
  await until(async () => (await ofQueues()).length === 0);
  await until(async () => (await connections()) === before);
  await host.state(await submitAs('user-0'), 'succeeded');
});

test('no job is lost or waits for long while queues are removed as soon as they are empty', async () => {
  await host.start({ sweepMs: 50, emptyQueueMs: 0 });
  const ids: string[] = [];
  for (let n = 0; n < 40; n += 1) ids.push(await submitAs(`user-${n % 5}`));
  for (const id of ids) await host.state(id, 'succeeded', 30);
  expect(ids.map((id) => host.starts(id))).toEqual(ids.map(() => 1));
  await until(async () => (await ofQueues()).length === 0);
});

test('a job in a queue whose label is gone is found, by a daemon that never knew it as well', async () => {
  const { connection, keys, pause } = { ...(await host.store()), pause: 'sleep 3' };
  const daemon = await host.start({ cpuLanes: 1, sweepMs: 300 });
  const first = await submitAs('first', pause);
  await host.state(first, 'running');
  const second = await submitAs('second');
  const label = labelFor(await host.job(second));
  await until(async () => (await connection.redis.hexists(keys.labels, label)) === 1);
  await host.kill(daemon);
  await connection.redis.hdel(keys.labels, label);
  await host.start({ sweepMs: 300 });
  await host.state(second, 'succeeded', 15);
  await host.state(first, 'succeeded');
});
