import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { commandOf, sweepOf } from '../../src/cli/sweep.js';
import type { JobOptions } from '../../src/contract/options.js';
import { submitSweep } from '../../src/daemon/index.js';
import { failure, until } from '../store/home.js';
import { options } from '../store/samples.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

/** A job of shell for each, the ids in order. */
async function submit(line: string, sweep: NonNullable<ReturnType<typeof sweepOf>>, changes: Partial<JobOptions> = {}) {
  const command = ['/bin/sh', '-c', line];
  const members = sweep.tasks.map((task) => ({ ...task, command: commandOf(command, task) }));
  const wanted = options({ cwd: host.work, budget: '64MiB', ...changes });
  const submission = { command, options: wanted, environment: process.env };
  return submitSweep(await host.store(), submission, { members, atOnce: sweep.atOnce });
}

const RUN = 'echo "$OOMTUNE_ARRAY_INDEX begin" >> order; sleep 0.4; echo "$OOMTUNE_ARRAY_INDEX end" >> order';

test('of an array no more run at a time than may, each knows its index, and all come to their turn', async () => {
  const sweep = sweepOf('3-9%2', undefined, ['true']);
  const records = await submit(RUN, sweep as NonNullable<typeof sweep>, { name: 'many' });
  expect(records.map(({ name }) => name)).toEqual([3, 4, 5, 6, 7, 8, 9].map((n) => `many-${n}`));
  await host.start();
  for (const { job } of records) await host.state(job, 'succeeded', 60);
  let now = 0;
  let most = 0;
  for (const line of host.lines('order')) {
    now += line.endsWith('begin') ? 1 : -1;
    most = Math.max(most, now);
  }
  expect(most).toBe(2);
  const began = host.lines('order').filter((line) => line.endsWith('begin'));
  expect(began.sort()).toEqual([3, 4, 5, 6, 7, 8, 9].map((n) => `${n} begin`));
  expect(await host.leftOver()).toEqual([]);
});

test('until the first of a sweep has found what holds for all, the others wait for it; then they start', async () => {
  await host.start();
  const sweep = sweepOf('0-2', undefined, ['true']);
  await host.state(await host.shell('true'), 'succeeded');
  const [first, ...others] = await submit(
    `echo $OOMTUNE_ARRAY_INDEX >> order; sleep 2`,
    sweep as NonNullable<typeof sweep>,
  );
  await host.state(first?.job as string, 'running');
  await until(() => host.lines('order').length === 3);
  expect((await host.job(first?.job as string)).state).toBe('running');
  for (const { job } of others) await host.state(job, 'succeeded');
});

test('sweeps are every combination; the name says which, and only their own placeholders are filled', () => {
  const command = ['train', '--lr', '{lr}', '--seed={seed}', '{{lr}}', `\${lr}`, '{micro_batch}', '{other}'];
  const sweep = sweepOf(undefined, ['lr=1e-3,1e-4', 'seed=0..2'], command);
  expect(sweep?.tasks.map(({ suffix }) => suffix)).toEqual([
    'lr-1e-3-seed-0',
    'lr-1e-3-seed-1',
    'lr-1e-3-seed-2',
    'lr-1e-4-seed-0',
    'lr-1e-4-seed-1',
    'lr-1e-4-seed-2',
  ]);
  expect(commandOf(command, sweep?.tasks[4] as never)).toEqual([
    'train',
    '--lr',
    '1e-4',
    '--seed=1',
    '{{lr}}',
    `\${lr}`,
    '{micro_batch}',
    '{other}',
  ]);
  expect(sweepOf('1,3-4%2', ['lr=1,2'], command)?.tasks.map(({ suffix }) => suffix)).toEqual([
    '1-lr-1',
    '1-lr-2',
    '3-lr-1',
    '3-lr-2',
    '4-lr-1',
    '4-lr-2',
  ]);
  for (const wrong of ['lr', 'lr=', 'x=1', 'micro_batch=1,2', 'seed=4..1', 'index=1', '=3'])
    expect(() => sweepOf(undefined, [wrong], command), wrong).toThrow(
      expect.objectContaining({ code: 'OOMTUNE_USAGE' }),
    );
  for (const [wrong, says] of [
    ['lr=0..10000', 'at most 10,000 values'],
    ['lr=4..1', 'a range that rises'],
    ['lr=1e-3,1e-4,1e-3', '"1e-3" is there twice'],
  ] as const)
    expect(() => sweepOf(undefined, [wrong], command), wrong).toThrow(says);
  expect(sweepOf(undefined, ['lr=0..9999'], command)?.tasks.length).toBe(10_000);
  for (const wrong of ['', '5-1', '0-59%0', 'a', '1-', '0-99999999', '0-9999999'])
    expect(() => sweepOf(wrong, undefined, command), wrong).toThrow(expect.objectContaining({ code: 'OOMTUNE_USAGE' }));
});

test('a sweep of which Redis refuses a job is taken back; what cannot be is named', async () => {
  const store = await host.store();
  const { redis } = store.connection;
  const { create, cancel } = store.jobs;
  const two = sweepOf('1-2', undefined, ['true']) as NonNullable<ReturnType<typeof sweepOf>>;
  const refusing = async <T>(call: () => Promise<T>): Promise<T> => {
    await redis.config('SET', 'maxmemory', '1');
    return call().finally(() => redis.config('SET', 'maxmemory', '0'));
  };
  const queued = async () => (await store.jobs.live()).map(({ job }) => job);
  let tries = 0;
  vi.spyOn(store.jobs, 'create').mockImplementation((...args) => {
    tries += 1;
    return tries % 2 === 0 ? refusing(() => create.apply(store.jobs, args)) : create.apply(store.jobs, args);
  });
  expect((await failure(submit('true', two))).message).toMatch(/^OOM /);
  expect(await queued()).toEqual([]);
  vi.spyOn(store.jobs, 'cancel').mockImplementation((id) => refusing(() => cancel.call(store.jobs, id)));
  const error = await failure(submit('true', two));
  expect(await queued()).toHaveLength(1);
  expect(error.message).toMatch(new RegExp(`it is full .* Queued before that, and .*: ${await queued()}\\.$`));
  vi.restoreAllMocks();
});
