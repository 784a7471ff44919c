import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { graceSeconds, longestEndMs } from '../../src/common/bounds.js';
import { formatSpan, parseSpan } from '../../src/common/span.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const SAYING = `trap 'echo asked >> said; exit 0' TERM; while :; do sleep 0.1; done`;

test('a job whose time is up is asked to end, and its state is timeout', async () => {
  await host.start();
  const id = await host.shell(SAYING, { timeSeconds: 1.5, retries: 2 });
  const job = await host.state(id, 'timeout');
  expect(host.lines('said')).toEqual(['asked']);
  expect(job.failure).toMatchObject({ class: 'timeout' });
  expect(host.starts(id)).toBe(1);
  expect(await host.leftOver()).toEqual([]);
});

test('one that does not end when asked is killed', async () => {
  await host.start({}, { OOMTUNE_GRACE_SECONDS: '1' });
  const id = await host.shell(`trap '' TERM; while :; do sleep 0.1; done`, { timeSeconds: 1 });
  await host.state(id, 'timeout', 40);
  expect(await host.leftOver()).toEqual([]);
});

test('a job has the time to save that Slurm and Kubernetes leave it, or what is set', async () => {
  expect([graceSeconds({}), longestEndMs({})]).toEqual([25, 60_000]);
  const longer = { OOMTUNE_GRACE_SECONDS: '100' };
  expect([graceSeconds(longer), longestEndMs(longer)]).toEqual([100, 135_000]);
  await host.start({}, longer);
  const id = await host.shell('sleep 0.1');
  const { launches } = await host.state(id, 'succeeded');
  const noted = readFileSync(join(String(launches[0]?.dir), 'supervisor.json'), 'utf8');
  expect(JSON.parse(noted)).toMatchObject({ grace_ms: 100_000 });
});

test('the limit holds while no daemon is there, and what ended before it is told as it ended', async () => {
  await host.start();
  const late = await host.shell(SAYING, { timeSeconds: 3 });
  const done = await host.shell('sleep 1', { timeSeconds: 2 });
  for (const id of [late, done]) await host.state(id, 'running');
  await host.kill();
  await sleep(4000);
  expect(host.lines('said')).toEqual(['asked']);
  await host.start();
  await host.state(late, 'timeout');
  await host.state(done, 'succeeded');
});

test('times are read as people and Slurm write them', () => {
  const read = ['4h', '1h30m', '45s', '2d', '2:30:00', '1-00:00:00', '1.5h', '', '4', 'h', '0s', '4 h'].map(parseSpan);
  expect(read).toEqual([14_400, 5400, 45, 172_800, 9000, 86_400, 5400, null, null, null, null, null]);
  expect([14_400, 5400, 45, 90_061, 0.5].map(formatSpan)).toEqual(['4h', '1h30m', '45s', '1d1h1m1s', '0.5s']);
});
