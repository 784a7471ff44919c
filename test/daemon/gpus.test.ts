import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { JobOptions } from '../../src/contract/options.js';
import { until } from '../store/home.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const H200 = 'NVIDIA H200';
const A100 = 'NVIDIA A100-SXM4-80GB';

/** Notes when it begins and ends, and on which devices. */
const noting = (seconds: number, changes: Partial<JobOptions>) =>
  host.shell(
    `echo "$(date +%s.%N) begin $OOMTUNE_JOB_ID $OOMTUNE_DEVICE" >> times; sleep ${seconds}; echo "$(date +%s.%N) end $OOMTUNE_JOB_ID $OOMTUNE_DEVICE" >> times`,
    { device: null, budget: null, ...changes },
  );

/** For each device the most jobs that were on it at a time; and the devices of each job. */
function use(): { most: Record<string, number>; devices: Record<string, string[]> } {
  const now: Record<string, number> = {};
  const most: Record<string, number> = {};
  const devices: Record<string, string[]> = {};
  for (const line of host.lines('times').sort()) {
    const [, what, job, list] = line.split(' ') as [string, string, string, string];
    devices[job] = list.split(',');
    for (const device of list.split(',')) {
      now[device] = (now[device] ?? 0) + (what === 'begin' ? 1 : -1);
      most[device] = Math.max(most[device] ?? 0, now[device] as number);
    }
  }
  return { most, devices };
}

test('a job has its GPUs to itself, several at once or none, and two that want several never block one another', async () => {
  await host.start({ gpus: [H200, H200, H200, H200] });
  const ids: string[] = [];
  for (const gpus of [2, 3, 1, 4, 2, 3, 1, 2]) ids.push(await noting(0.3, { gpus }));
  for (const id of ids) await host.state(id, 'succeeded', 60);
  const { most, devices } = use();
  expect(most).toEqual({ 'cuda:0': 1, 'cuda:1': 1, 'cuda:2': 1, 'cuda:3': 1 });
  expect(ids.map((id) => new Set(devices[id]).size)).toEqual([2, 3, 1, 4, 2, 3, 1, 2]);
  expect(await host.leftOver()).toEqual([]);
});

test('jobs are packed by their budgets; one without a budget waits until it is alone', async () => {
  await host.start({ gpus: [H200] });
  const shared: string[] = [];
  for (let n = 0; n < 3; n += 1) shared.push(await noting(1.5, { budget: '30GiB' }));
  await until(() => host.lines('times').filter((line) => line.includes('begin')).length === 2);
  const whole = await noting(0.2, {});
  for (const id of [...shared, whole]) await host.state(id, 'succeeded', 60);
  const order = host.lines('times').sort();
  expect(use().most).toEqual({ 'cuda:0': 2 });
  const alone = order.findIndex((line) => line.includes(`begin ${whole}`));
  expect(order[alone + 1]).toContain(`end ${whole}`);
});

test('a job goes to the model that it names', async () => {
  await host.start({ gpus: [A100, H200, A100] });
  const one = await noting(0.1, { gpuModel: 'h200' });
  const two = await noting(0.1, { gpuModel: 'A100', gpus: 2 });
  const many = await noting(0.1, { gpuModel: 'h200', gpus: 2 });
  await host.state(one, 'succeeded');
  await host.state(two, 'succeeded');
  const { devices } = use();
  expect(devices[one]).toEqual(['cuda:1']);
  expect([...(devices[two] ?? [])].sort()).toEqual(['cuda:0', 'cuda:2']);
  expect((await host.job(many)).state).toBe('queued');
});

test('GPU jobs and host jobs do not wait for one another', async () => {
  await host.start({ gpus: [H200], cpuLanes: 1 });
  const gpu = await noting(3, {});
  await host.state(gpu, 'running');
  const cpu = await host.shell('true');
  await host.state(cpu, 'succeeded');
  expect((await host.job(gpu)).state).toBe('running');
});

test('the devices of an adopted run stay its own', async () => {
  await host.start({ gpus: [H200, H200] });
  const first = await noting(4, {});
  const device = (await host.state(first, 'running')).devices[0];
  await host.kill();
  await host.start({ gpus: [H200, H200] });
  const next = [await noting(0.3, {}), await noting(0.3, {})];
  for (const id of [first, ...next]) await host.state(id, 'succeeded');
  const { devices, most } = use();
  expect(most).toEqual({ 'cuda:0': 1, 'cuda:1': 1 });
  expect(devices[first]).toEqual([device]);
});

const HALF = { model: H200, foreign: 40 * 2 ** 30 };

test('jobs that wait for the memory of strangers keep nobody behind them from a device that would do', async () => {
  await host.start({ gpus: [HALF, HALF], gpuLanes: 1 });
  const whole: string[] = [];
  for (let n = 0; n < 4; n += 1) whole.push(await noting(0.1, {}));
  const large = await noting(0.1, { budget: '60GiB' });
  await until(async () => /blender/.test((await host.job(whole[0] as string)).reason ?? ''));
  const small = [await noting(0.2, { budget: '30GiB' }), await noting(0.2, { budget: '5GiB' })];
  for (const id of small) await host.state(id, 'succeeded');
  for (const id of [...whole, large]) expect((await host.job(id)).state).toBe('queued');
});

test.each([1, 4])(
  'of jobs that take different amounts the one with the higher priority goes first, with %i lanes',
  async (gpuLanes) => {
    await host.start({ gpus: [H200], gpuLanes });
    const first = await noting(2, {});
    await host.state(first, 'running');
    const low = [await noting(0.1, { budget: '70GiB' }), await noting(0.1, { budget: '60GiB', priority: 1 })];
    const high = await noting(0.1, { budget: '50GiB', priority: 5 });
    for (const id of [first, ...low, high]) await host.state(id, 'succeeded');
    const began = host.lines('times').flatMap((line) => (line.includes(' begin ') ? [line.split(' ')[2]] : []));
    expect(began).toEqual([first, high, low[1], low[0]]);
  },
);

test('a job that ends in time goes before one that waits for more devices, and before those of its own queue that take longer', async () => {
  await host.start({ gpus: [H200, H200], leaseTimes: { reserveAfterMs: 0, lookMs: 200 } });
  const long = await noting(6, { timeSeconds: 60 });
  await host.state(long, 'running');
  const all = await noting(0.1, { gpus: 2 });
  await until(async () => (await host.job(all)).reason?.includes(`${long} holds all`) ?? false);
  const late = await noting(0.1, { timeSeconds: 600 });
  await until(async () => (await host.job(late)).reason?.includes(`${all} has waited longer`) ?? false);
  const brief = await noting(0.1, { timeSeconds: 20 });
  await host.state(brief, 'succeeded');
  expect((await host.job(long)).state).toBe('running');
  for (const id of [long, all, late]) await host.state(id, 'succeeded');
  const began = host.lines('times').flatMap((line) => (line.includes(' begin ') ? [line.split(' ')[2]] : []));
  expect(began).toEqual([long, brief, all, late]);
});

test('what a job of a name took before is what the next is expected to take', async () => {
  await host.start({ gpus: [H200, H200], leaseTimes: { reserveAfterMs: 0, lookMs: 200 } });
  await host.state(await noting(0.1, { name: 'brief' }), 'succeeded');
  const long = await noting(6, { timeSeconds: 60 });
  await host.state(long, 'running');
  const all = await noting(0.1, { gpus: 2 });
  await until(async () => (await host.job(all)).reason?.includes(`${long} holds all`) ?? false);
  const again = await noting(0.1, { name: 'brief' });
  await host.state(again, 'succeeded');
  expect((await host.job(long)).state).toBe('running');
});

test('a command over several machines takes the GPUs of its processes on this one', async () => {
  await host.start({ gpus: [H200, H200] });
  const torchrun = join(host.work, 'torchrun');
  writeFileSync(torchrun, '#!/bin/sh\necho $OOMTUNE_DEVICE > devices\n', { mode: 0o755 });
  const command = [torchrun, '--nnodes=4', '--nproc-per-node=2', '--node-rank=0', 'train.py'];
  const id = await host.submit(command, { device: null, budget: null, tune: false });
  await host.state(id, 'succeeded');
  expect(host.lines('devices')).toEqual(['cuda:0,cuda:1']);
});
