import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { explainJob } from '../../src/cli/explain-view.js';
import type { JobOptions } from '../../src/contract/options.js';
import { submitSweep } from '../../src/daemon/index.js';
import { until } from '../store/home.js';
import { options } from '../store/samples.js';
import { FIXTURES, pythonWithTorch } from '../worker/harness.js';
import { Host, sleep } from './host.js';

const python = pythonWithTorch();
let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

/** A training script that is tuned unmodified, in the job's own folder. */
function submit(name: string, changes: Partial<JobOptions> = {}): Promise<string> {
  copyFileSync(join(FIXTURES, name), join(host.work, name));
  const wanted = { budget: '38MiB', preset: 'auto', tune: true, timeoutSeconds: 60, retries: 3, ...changes };
  return host.submit([python, name], wanted, { ...process.env, OMP_NUM_THREADS: '1' });
}

test('the first submission searches, the second on the same kind of device reuses what was recorded', async () => {
  await host.start();
  const first = await submit('tiny.py', { effectiveBatch: 512 });
  const found = await host.state(first, 'succeeded', 100);
  expect(found.journal.length).toBeGreaterThan(1);
  const recorded = await (await host.store()).recommendations.get(found.key as string);
  expect(recorded).toMatchObject({ status: 'verified' });
  const second = await submit('tiny.py', { effectiveBatch: 512 });
  const reused = await host.state(second, 'succeeded', 60);
  expect(reused.journal).toEqual([]);
  expect(reused.launches.map((launch) => launch.purpose)).toEqual(['run']);
  expect(reused.config).toEqual(found.config);
  expect(found.config?.effective_batch).toBe(512);
  expect(await host.leftOver()).toEqual([]);
});

test('a job whose memory grows with every step is launched once, and says what keeps the memory', async () => {
  await host.start();
  const id = await submit('cache.py', { budget: '120MiB' });
  const job = await host.state(id, 'failed', 60);
  expect(job.launches.length).toBe(1);
  expect(job.failure).toMatchObject({ class: 'device_oom', fields: { reason: 'leak' } });
  expect(job.failure?.fields).toMatchObject({ line: expect.stringMatching(/^cache\.py:\d+ in /) });
  expect(job.failure?.fields.steps).toBeGreaterThan(0);
  expect(job.failure?.fields.cause).toContain('`self.cache` (cache.py:16: self.cache[index] = out.detach())');
  expect(await host.leftOver()).toEqual([]);
});

test('a run as it stands whose daemon is killed is heard by the next, which records it; then others of its sweep start', async () => {
  await host.start();
  const go = join(host.work, 'go');
  copyFileSync(join(FIXTURES, 'waits.py'), join(host.work, 'waits.py'));
  const changes = { cwd: host.work, budget: '200MiB', preset: 'auto', tune: true, env: [`GO=${go}`] } as const;
  const command = [python, 'waits.py'];
  const members = [0, 1].map((index) => ({ command, suffix: String(index), index }));
  const submission = { command, options: options({ ...changes, name: 'waits' }), environment: process.env };
  const [first, second] = await submitSweep(await host.store(), submission, { members, atOnce: null });
  await host.state(first?.job as string, 'running', 60);
  const dir = (await host.job(first?.job as string)).launches[0]?.dir as string;
  await until(() => existsSync(join(dir, 'progress')), 60);
  await host.kill();
  await host.start();
  await host.state(first?.job as string, 'running', 60);
  expect((await host.job(second?.job as string)).launches).toEqual([]);
  writeFileSync(go, '');
  const ran = await host.state(first?.job as string, 'succeeded', 60);
  expect(ran).toMatchObject({
    config: { micro_batch: 64 },
    launches: [{ purpose: 'run', config: { micro_batch: 64 } }],
  });
  expect(ran.journal).toMatchObject([{ launch: 1, micro_batch: 64, outcome: 'fit' }]);
  const recorded = await (await host.store()).recommendations.get(ran.key as string);
  expect(recorded).toMatchObject({ status: 'verified', micro_batch: 64, own_batch: 64, own_accumulation: 1 });
  const other = await host.state(second?.job as string, 'succeeded', 60);
  expect(other).toMatchObject({ journal: [], launches: [{ purpose: 'run' }] });
  await until(async () => (await host.leftOver()).length === 0);
});

test('a search goes on where a killed daemon left it, and no size that is known to be bad is tried again', async () => {
  await host.start();
  const id = await submit('tiny.py', { effectiveBatch: 512 });
  const kills = 3;
  let seen = 0;
  for (let n = 0; n < kills; n += 1) {
    await until(async () => (await host.job(id)).journal.length > seen || (await host.job(id)).state === 'running', 60);
    const job = await host.job(id);
    if (job.state === 'running') break;
    await host.kill();
    const { journal, launches } = await host.job(id);
    seen = journal.length;
    // Every launch that left a folder had been recorded before
    const { readdirSync } = await import('node:fs');
    for (const name of readdirSync(join(host.home, 'runs', id))) {
      expect(launches.map((launch) => String(launch.launch))).toContain(name);
    }
    await host.start();
  }
  const job = await host.state(id, 'succeeded', 100);
  const bad = new Map<string, number>();
  for (const { rung, micro_batch: microBatch, outcome, ambiguous } of job.journal) {
    const key = JSON.stringify(rung);
    expect(microBatch, `${microBatch} was tried though a smaller one had failed`).toBeLessThan(
      bad.get(key) ?? Infinity,
    );
    if (outcome === 'device_oom' && !ambiguous) bad.set(key, Math.min(microBatch, bad.get(key) ?? Infinity));
  }
  expect(seen).toBeGreaterThan(0);
  expect(job.config?.effective_batch).toBe(512);
  await until(async () => (await host.leftOver()).length === 0);
});

test('a job that does not fit is searched for in forks that it has left, which end with a daemon that is killed: the next goes on', async () => {
  await host.start();
  const id = await submit('wide.py', { budget: '85MiB' });
  const searching = await host.state(id, 'searching', 60);
  expect(searching.launches.map(({ purpose }) => purpose)).toEqual(['run']);
  await until(async () => (await host.job(id)).journal.length > 2);
  await host.kill();
  await until(() => host.processes().length === 0);
  await host.start();
  const job = await host.state(id, 'succeeded', 120);
  expect(job.config).toMatchObject({ micro_batch: 256, effective_batch: 1024 });
  expect(job.launches.filter(({ purpose }) => purpose === 'run').length).toBe(2);
  const story = explainJob(job, null, null, (_, text) => text);
  expect(story).toMatch(/The search:\n +launch 1, as it stands\n +micro-batch 1024: out of memory/);
  expect(story).not.toContain('No search was needed');
  await until(async () => (await host.leftOver()).length === 0);
});

test('a job whose memory grows with every epoch is launched once, and explain says what keeps the memory', async () => {
  await host.start();
  const id = await submit('keeps_weights.py', { budget: '100MiB' });
  const job = await host.state(id, 'failed', 60);
  expect(job.launches.filter((launch) => launch.purpose === 'run').length).toBe(1);
  expect(job.failure).toMatchObject({ class: 'device_oom', fields: { reason: 'leak' } });
  expect(explainJob(job, null, null, (_, text) => text)).toContain(
    'kept by `best` (keeps_weights.py:20: best.append(copy.deepcopy(model.state_dict())))',
  );
  await until(async () => (await host.leftOver()).length === 0);
});

test('cancelled between two probes of its search, a job leaves nothing behind and no half record', async () => {
  await host.start();
  const id = await submit('tiny.py', { effectiveBatch: 512 });
  await until(async () => (await host.job(id)).journal.length > 0, 60);
  await (await host.store()).jobs.cancel(id);
  await host.state(id, 'cancelled', 30);
  await until(async () => (await host.leftOver()).length === 0);
  expect(await (await host.store()).recommendations.list()).toEqual([]);
});

test('out of memory late in a submitted job: the record is demoted, and it goes on smaller, told to resume', async () => {
  await host.start();
  const id = await submit('late.py', { budget: '100MiB', resumeArg: '--resume', cut: 'loader' });
  const job = await host.state(id, 'succeeded', 100);
  const recorded = await (await host.store()).recommendations.get(job.key as string);
  expect(recorded).toMatchObject({ status: 'demoted' });
  const runs = job.launches.filter((launch) => launch.purpose === 'run');
  expect(runs.length).toBeGreaterThan(1);
  expect(recorded?.known_bad_micro_batch).toBeLessThanOrEqual(runs[0]?.config?.micro_batch as number);
  expect(job.notes).toContainEqual(expect.stringContaining('resuming'));
  const sizes = runs.map((launch) => launch.config?.micro_batch as number);
  expect([...sizes].sort((a, b) => b - a)).toEqual(sizes);
  expect(new Set(runs.map((launch) => launch.config?.effective_batch)).size).toBe(1);
  const logs = runs.map(({ dir }) => readFileSync(join(dir, 'log'), 'utf8'));
  expect(logs[0]).toContain('resume 0 []');
  expect(logs.at(-1)).toContain("resume 1 ['--resume']");
});

test('a neighbour on the same device does not feel another job’s out of memory', async () => {
  writeFileSync(
    join(host.work, 'greedy.py'),
    'import torch\nkept = []\nwhile True:\n    kept.append(torch.ones(2_000_000))\n',
  );
  writeFileSync(
    join(host.work, 'steady.py'),
    'import time, torch\nfor _ in range(12):\n    x = torch.ones(5_000_000)\n    time.sleep(0.25)\nprint("steady", flush=True)\n',
  );
  await host.start();
  const shared = { share: true, budget: '400MiB', tune: false, preset: 'none', retries: 0 };
  const steady = await host.submit([python, 'steady.py'], { ...shared });
  await host.state(steady, 'running');
  const greedy = await host.submit([python, 'greedy.py'], { ...shared });
  expect(await host.state(greedy, 'failed', 60)).toMatchObject({ failure: { class: 'device_oom' } });
  await host.state(steady, 'succeeded', 30);
  await sleep(100);
  expect(await host.leftOver()).toEqual([]);
});
