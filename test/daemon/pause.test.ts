import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cancelJob, pauseJob } from '../../src/daemon/index.js';
import { failure, until } from '../store/home.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

/** Counts in two processes, one of them in a session of its own, until it has been enough. */
const COUNTING = `setsid sh -c 'while :; do echo tick >> below; sleep 0.05; done' & i=0; while [ ! -e enough ]; do i=$((i+1)); echo $i >> ticks; sleep 0.05; done; kill $!`;

/** It goes on from there, and ends well. */
async function countsOn(id: string, before: number): Promise<void> {
  await until(() => host.lines('ticks').length > before);
  writeFileSync(join(host.work, 'enough'), '');
  await host.state(id, 'succeeded', 60);
  const ticks = host.lines('ticks').map(Number);
  expect(ticks).toEqual(ticks.map((_, at) => at + 1));
}

test('a paused job stands still with all its processes, keeps its memory, and goes on where it was', async () => {
  await host.start();
  const id = await host.shell(COUNTING);
  await until(() => host.lines('ticks').length > 2 && host.lines('below').length > 2);
  const store = await host.store();
  expect(await pauseJob(store, id, 'on')).toBe('paused');
  const before = [host.lines('ticks').length, host.lines('below').length];
  await sleep(1000);
  expect([host.lines('ticks').length, host.lines('below').length]).toEqual(before);
  expect((await host.job(id)).state).toBe('running');
  expect((await store.leasing.list()).map(({ owner }) => owner)).toEqual([id]);
  expect(await pauseJob(store, id, 'off')).toBe('goes on');
  await countsOn(id, before[0] as number);
  expect(host.starts(id)).toBe(1);
  expect(await failure(pauseJob(store, id, 'on'))).toMatchObject({ code: 'OOMTUNE_USAGE' });
});

test('the next daemon knows of a pause, also of one that was ended while none was there', async () => {
  await host.start();
  const id = await host.shell(COUNTING);
  await until(() => host.lines('ticks').length > 2);
  const store = await host.store();
  expect(await pauseJob(store, id, 'on')).toBe('paused');
  await host.kill();
  await store.jobs.pause(id, 'off');
  const before = host.lines('ticks').length;
  await sleep(500);
  expect(host.lines('ticks')).toHaveLength(before);
  await host.start();
  await countsOn(id, before);
});

test('a paused job can be cancelled, and its time runs on', async () => {
  await host.start();
  const cancelled = await host.shell(COUNTING);
  const late = await host.shell(COUNTING, { timeSeconds: 4 });
  for (const id of [cancelled, late]) await host.state(id, 'running');
  const store = await host.store();
  for (const id of [cancelled, late]) expect(await pauseJob(store, id, 'on')).toBe('paused');
  await cancelJob(store, cancelled);
  await host.state(cancelled, 'cancelled', 40);
  await host.state(late, 'timeout', 40);
  expect(await host.leftOver()).toEqual([]);
});
