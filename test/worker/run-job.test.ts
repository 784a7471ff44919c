import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Detached } from '../../src/worker/launch/detached.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

function logs(bench: ReturnType<typeof workbench>): string[] {
  const launches = (
    bench.persisted.findLast((patch) => 'launches' in patch) as { launches: { dir: string; purpose: string }[] }
  ).launches;
  return launches.filter((launch) => launch.purpose === 'run').map(({ dir }) => readFileSync(join(dir, 'log'), 'utf8'));
}

describe('running a job to its end', () => {
  it('runs a script that fits exactly as it stands, and reuses what it learned', async () => {
    const bench = workbench('run', [python, 'tiny.py']);
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, failure: null });
    expect(report.config).toMatchObject({ micro_batch: 64, accumulation: 1, amp: 'off', checkpointing: false });
    expect(logs(bench)[0]).toContain('trained');

    const again = await runJob({ ...bench.request, jobId: `${bench.request.jobId}b` }, bench.deps);
    expect(again).toMatchObject({ outcome: 'succeeded', launches: 1 });
    expect(bench.events.filter((event) => event.type === 'reused')).toHaveLength(1);
  });

  it('keeps the effective batch with a smaller micro-batch where the script’s own does not fit', async () => {
    const bench = workbench('run', [python, 'tiny.py'], { budget: '38MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded' });
    expect(report.config?.effective_batch).toBe(64);
    expect(report.cut).toEqual({ cut: 'model', why: 'the loop sees its own batches only' });
    expect(bench.persisted.some((patch) => patch.cut?.cut === 'model')).toBe(true);
    expect([...bench.recorded.values()][0]).toMatchObject({ cut: 'model' });
    expect(report.config?.micro_batch).toBeLessThan(64);
    expect((report.config?.micro_batch ?? 0) * (report.config?.accumulation ?? 0)).toBe(64);
    expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(38 * 1024 ** 2);
  });

  it.each([
    ['a shell script', ['sh', 'train.sh', python]],
    ['a make target', ['make', 'train', `PYTHON=${python}`]],
  ])('does so for what %s starts, of which nothing is recorded', async (_, command) => {
    const bench = workbench('run', command, { budget: '38MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', config: { effective_batch: 64 } });
    expect(report.config?.micro_batch).toBeLessThan(64);
    expect(logs(bench)[0]).not.toContain('trained');
    expect(logs(bench).at(-1)).toContain('trained');
    await bench.noneLeft();
  });

  it('says so where a shell script goes on after its training ran out of memory', async () => {
    const bench = workbench('run', ['sh', 'goes-on.sh', python], { budget: '38MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', launches: 1, config: null });
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes.join(' ')).toContain('the script went on: its training is missing. With `set -e`');
    const told = bench.persisted.findLast(({ versions }) => versions !== undefined)?.versions;
    expect(told).toMatchObject({ python: expect.stringMatching(/^3\.\d+\.\d+$/), torch: expect.stringMatching(/^\d/) });
  });

  it('starts a shell script that fails, and trains nothing, no second time', async () => {
    const unhooked = '"$1" -I -c "import torch; torch.ones(100 << 20)"';
    const bench = workbench('run', ['sh', '-c', unhooked, 'sh', python], { budget: '38MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, launches: 1 });
    expect(report.failure?.class).toBe('device_oom');
  });

  it('looks beyond the script’s own batch when a larger effective batch is asked for', async () => {
    const bench = workbench('run', [python, 'tiny.py'], { effectiveBatch: 128 });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', config: { effective_batch: 128 } });
    expect(report.config?.micro_batch).toBe(128);
  });

  it('counts what the loop accumulates by itself into the effective batch', async () => {
    const bench = workbench('run', [python, 'accumulating.py']);
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded' });
    expect(report.config).toMatchObject({ micro_batch: 64, accumulation: 4, effective_batch: 256 });
    expect(logs(bench)[0]).toContain('steps 4');

    const small = workbench('run', [python, 'accumulating.py'], { budget: '38MiB' });
    const split = await runJob(small.request, small.deps);
    expect(split).toMatchObject({ outcome: 'succeeded', config: { effective_batch: 256 } });
    expect(split.config?.micro_batch).toBeLessThan(64);
    expect(logs(small).at(-1)).toContain('loop steps'); // the loop's own calls go on; the optimizer's steps are gated
  });

  it('runs a script that trains nothing as it stands', async () => {
    const bench = workbench('run', [python, '-c', 'import torch; print("evaluated")']);
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, config: null });
    expect(logs(bench)).toEqual(['evaluated\n']);
  });

  it('passes a failure through without another try', async () => {
    const bench = workbench('run', [python, 'flags.py', '--fail', 'exit'], { tune: false });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 7, launches: 1, config: null });
    expect(report.failure?.class).toBe('user_error');
  });

  it('passes the failure of a tuned script through too, with its last words', async () => {
    const bench = workbench('run', [python, 'flags.py', '--batch', '{micro_batch}', '--fail', 'exit']);
    const report = await runJob({ ...bench.request, foreground: true }, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 7, launches: 1, config: null });

    const shell = workbench('run', ['sh', '-c', 'exit 9']);
    expect(await runJob(shell.request, shell.deps)).toMatchObject({ outcome: 'failed', exit_code: 9, launches: 1 });
  });

  it('steps down after a late out-of-memory error, demotes the record and says resume', async () => {
    const bench = workbench('run', [python, 'late.py'], { budget: '100MiB', resumeArg: '--resume', cut: 'loader' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    expect(report.config).toMatchObject({ effective_batch: 64 });
    expect(report.config?.micro_batch).toBeLessThan(64);
    const runs = logs(bench);
    expect(runs[0]).toContain('resume 0 []');
    expect(runs.at(-1)).toContain("resume 1 ['--resume']");
    expect(runs.at(-1)).toContain('trained');
    expect([...bench.recorded.values()][0]).toMatchObject({ status: 'demoted' });
  });

  it.each([
    ['that no call of a model was cut', 'before', /^Give a larger --budget.* No call of a model was cut before that/],
    ['which calls were', 'after', /smaller micro-batch.* What is cut are calls of Linear: what is computed of their/],
  ])('says after a late out-of-memory error %s', async (_, place, advice) => {
    const seen = join(mkdtempSync(join(tmpdir(), 'oomtune-late-')), 'seen');
    const command = [python, 'late-held.py', place, seen];
    const bench = workbench('run', command, { budget: '100MiB', amp: 'off', retries: 1 });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', launches: 2, failure: { class: 'device_oom' } });
    expect(report.failure?.advice).toMatch(advice);
  });

  it('takes no smaller size where a worker of the loader ran out of memory, whose batches would be the same', async () => {
    const bench = workbench('run', [python, 'fetches.py']);
    const large = { ...bench.request, environment: { ...bench.request.environment, LARGE: '1' } };
    const failed = { outcome: 'failed', launches: 1, failure: { reason: 'worker', cure: 'none' } };
    expect(await runJob(large, bench.deps)).toMatchObject(failed);
    expect([...bench.recorded.values()]).toEqual([]);

    const well = await runJob({ ...bench.request, jobId: `${large.jobId}b` }, bench.deps);
    expect(well).toMatchObject({ outcome: 'succeeded' });
    expect(await runJob({ ...large, jobId: `${large.jobId}c` }, bench.deps)).toMatchObject(failed);
    expect([...bench.recorded.values()]).toMatchObject([{ status: 'verified' }]);
  });

  it('lets go of a run when told to, and another process takes it over', async () => {
    const command = [python, '-c', 'import time; time.sleep(5); print("through")'];
    const bench = workbench('submit', command, { tune: false });
    const first = runJob(bench.request, bench.deps);
    await expect.poll(() => bench.processes().length, { timeout: 20_000 }).toBeGreaterThan(0);
    bench.controller.abort(new Detached());
    await expect(first).rejects.toBeInstanceOf(Detached);
    expect(bench.processes().length).toBeGreaterThan(0);

    const { launches } = bench.persisted.findLast((patch) => 'launches' in patch) as { launches: [] };
    const next = workbench('submit', command, { tune: false });
    const report = await runJob({ ...next.request, jobId: bench.request.jobId, launches }, next.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', launches: 1 });
    expect(logs(bench)).toEqual(['through\n']);
    await bench.noneLeft();
  });

  it('ends the job and all of its processes when it is cancelled', async () => {
    const bench = workbench('run', ['sh', '-c', 'sleep 600 & setsid sleep 600 & wait'], { tune: false });
    const work = runJob(bench.request, bench.deps);
    await expect.poll(() => bench.events.some((event) => event.type === 'running')).toBe(true);
    bench.controller.abort(new Error('cancelled'));
    expect(await work).toMatchObject({ outcome: 'cancelled' });
    await bench.noneLeft();
    expect(bench.leases()).toBe(0);
  });

  it('ends at its time limit', async () => {
    const bench = workbench('run', ['sleep', '600'], { tune: false, timeoutSeconds: 1 });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'timeout' });
  });
});
