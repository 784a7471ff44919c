import { afterEach, beforeEach, expect, test } from 'vitest';
import type { JobOptions } from '../../src/contract/options.js';
import { digest, exactDigest, recognise } from '../../src/worker/command/index.js';
import { until } from '../store/home.js';
import { recommendation } from '../store/samples.js';
import { Host } from './host.js';

const GIB = 2 ** 30;
const H200 = 'NVIDIA H200';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const LINE =
  'echo "begin $OOMTUNE_JOB_ID {micro_batch} $OOMTUNE_BUDGET_BYTES" >> times; sleep 2; echo "end $OOMTUNE_JOB_ID" >> times';
const COMMAND = ['/bin/sh', '-c', LINE];
const SHARES: Partial<JobOptions> = {
  name: 'packed',
  device: null,
  budget: null,
  tune: true,
  share: true,
  preset: 'auto',
};

/** What a search on the whole device would have recorded; there is no GPU to search on. */
async function record(peak: number): Promise<void> {
  const plan = await recognise(COMMAND, { cwd: host.work, env: process.env, preset: 'auto', worldSize: null });
  const known = digest(plan);
  const recorded = recommendation({
    key: 'packed:nvidia-h200:80g:1x',
    name: 'packed',
    gpu_model: H200,
    budget_bytes: 80 * GIB,
    world_size: 1,
    micro_batch: 8,
    accumulation: 1,
    effective_batch: 8,
    max_micro_batch: 8,
    amp: 'off',
    checkpointing: false,
    peak_bytes: peak,
    command_digest: known,
    commands: [{ digest: exactDigest(plan, known), own_batch: null, own_accumulation: null }],
  });
  await (await host.store()).recommendations.put(recorded, null);
}

test('--share without a budget reserves the recorded peak and the headroom, so that jobs go side by side', async () => {
  await host.start({ gpus: [H200] });
  await record(30 * GIB);
  const reserved = Math.ceil(30 * GIB * 1.03);
  const ids: string[] = [];
  for (let n = 0; n < 3; n += 1) ids.push(await host.submit(COMMAND, SHARES));
  await until(() => host.lines('times').filter((line) => line.startsWith('begin')).length === 2);
  const leases = await (await host.store()).leasing.list();
  expect(leases.map(({ bytes, share }) => ({ bytes, share }))).toEqual([
    { bytes: reserved, share: true },
    { bytes: reserved, share: true },
  ]);
  expect(host.lines('times').map((line) => line.split(' ').slice(2))).toEqual([
    ['8', String(reserved)],
    ['8', String(reserved)],
  ]);
  for (const id of ids) await host.state(id, 'succeeded');
  expect(await host.leftOver()).toEqual([]);
});

test('with nothing recorded it has its device to itself', async () => {
  await host.start({ gpus: [H200] });
  const line = 'echo "begin $OOMTUNE_JOB_ID" >> times; sleep 1';
  const ids = [await host.submit(['/bin/sh', '-c', line], SHARES), await host.submit(['/bin/sh', '-c', line], SHARES)];
  await until(() => host.lines('times').length === 1);
  expect((await (await host.store()).leasing.list()).map(({ bytes }) => bytes)).toEqual([null]);
  for (const id of ids) await host.state(id, 'succeeded', 60);
});

test('what was never seen on the device when it was recorded has it to itself, as how much it needs is not known', async () => {
  await host.start({ gpus: [H200] });
  await record(0);
  const id = await host.submit(COMMAND, SHARES);
  await until(() => host.lines('times').length === 1);
  expect((await (await host.store()).leasing.list()).map(({ bytes }) => bytes)).toEqual([null]);
  await host.state(id, 'succeeded');
});
