import { cpSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { secondsAtStake } from '../../src/worker/run/resumption.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
let folder = '';
/** A folder of its own, removed after the test. */
const made = (): string => {
  folder = mkdtempSync(join(tmpdir(), 'oomtune-resumption-'));
  return folder;
};
const notesOf = (bench: ReturnType<typeof workbench>): string =>
  bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : [])).join('\n');
/** What the last launch printed. */
function logOf(bench: ReturnType<typeof workbench>): string {
  const { launches } = bench.persisted.findLast((patch) => 'launches' in patch) as { launches: { dir: string }[] };
  return readFileSync(join(launches.at(-1)?.dir ?? '', 'log'), 'utf8');
}

afterEach(() => {
  delete process.env.OOMTUNE_RESTART_SECONDS;
  delete process.env.OOMTUNE_FIRST_START;
  if (folder !== '') rmSync(folder, { recursive: true, force: true });
});

describe('a job that runs out of memory late', () => {
  it('is said to resume where its script asks whether it is to', async () => {
    const bench = workbench('run', [python, 'late.py'], { budget: '100MiB', cut: 'loader' });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'succeeded' });
    expect(notesOf(bench)).toContain(', resuming. ');
  });

  it('is said to resume, and does, where its preset knows that its program goes on from its checkpoint', async () => {
    const options = { cwd: join(FIXTURES, 'resumes'), budget: '100MiB', amp: 'off', checkpointing: 'off' } as const;
    const command = [python, 'train.py', '--batch-size', '64', '--save-dir', made()];
    const bench = workbench('run', command, { ...options, preset: 'fairseq' });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({
      outcome: 'succeeded',
      config: { micro_batch: 32 },
    });
    expect(notesOf(bench)).toContain('going on with 32 x 2, resuming. ');
    expect(logOf(bench)).toContain('from step 6');
  });

  it('is said to start again from the beginning, and does, where its preset knows that it does so unless it is told', async () => {
    const options = { budget: '100MiB', amp: 'off', checkpointing: 'off' } as const;
    const cwd = made();
    cpSync(join(FIXTURES, 'scratch'), cwd, { recursive: true });
    const bench = workbench('run', [python, 'train.py'], { ...options, cwd });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'succeeded' });
    expect(notesOf(bench)).toContain(', again from the beginning. ');
    expect(logOf(bench)).toContain('from step 0');
  });

  it('is said to start again from the beginning where nothing shows that it resumes', async () => {
    const bench = workbench('run', [python, 'late_alone.py'], { cut: 'loader', budget: '100MiB' });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'succeeded' });
    expect(notesOf(bench)).toContain(', again from the beginning. ');
    expect(notesOf(bench)).not.toContain('resuming');
  });

  it('is said to start again from the beginning where its script fills a model from another, and reads no file', async () => {
    const cwd = made();
    cpSync(join(FIXTURES, 'late_target.py'), join(cwd, 'late_target.py'));
    const bench = workbench('run', [python, 'late_target.py'], { cut: 'loader', budget: '100MiB', cwd });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'succeeded' });
    expect(notesOf(bench)).toContain(', again from the beginning. ');
  });

  it('is not started again by itself where more is at stake than the limit says, unless it is told to', async () => {
    process.env.OOMTUNE_RESTART_SECONDS = '0.1';
    const bench = workbench('run', [python, 'late_alone.py'], { cut: 'loader', budget: '100MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', failure: { class: 'device_oom' } });
    expect(report.failure?.advice).toMatch(
      /^It ran for \d+ s, .*`--restart` runs it again from the beginning, at 32 x 2/,
    );
    const again = workbench('run', [python, 'late_alone.py'], { cut: 'loader', budget: '100MiB', restart: true });
    expect(await runJob(again.request, again.deps)).toMatchObject({ outcome: 'succeeded' });
  });

  it('is left to the scheduler with --requeue, once the next start is known to take a smaller size', async () => {
    process.env.OOMTUNE_RESTART_SECONDS = '0.1';
    const options = { cut: 'loader', budget: '100MiB', requeue: true } as const;
    const bench = workbench('run', [python, 'late_alone.py'], options);
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', failure: { class: 'device_oom' } });
    expect(report.next_start).toMatch(/^Micro-batch 64 is recorded as too large/);
    expect([...bench.recorded.values()]).toMatchObject([{ status: 'demoted', known_bad_micro_batch: 64 }]);
    const broken = workbench('run', [python, '-c', 'import torch; raise SystemExit(3)'], options);
    expect((await runJob(broken.request, broken.deps)).next_start).toBeUndefined();
  });

  it('goes on from the checkpoint of an earlier start by a scheduler', async () => {
    const cwd = made();
    const since = Date.now() - 60_000;
    writeFileSync(join(cwd, 'train.py'), 'import os; print("resume", os.environ.get("OOMTUNE_RESUME"))\n');
    utimesSync(join(cwd, 'train.py'), since / 1000 - 60, since / 1000 - 60);
    process.env.OOMTUNE_FIRST_START = String(since / 1000);
    const fresh = workbench('run', [python, 'train.py'], { cwd, tune: false });
    await runJob(fresh.request, fresh.deps);
    expect(logOf(fresh)).toContain('resume None');
    writeFileSync(join(cwd, 'last.ckpt'), 'weights');
    const again = workbench('run', [python, 'train.py'], { cwd, tune: false });
    await runJob(again.request, again.deps);
    expect(logOf(again)).toContain('resume 1');
  });

  it('has ten minutes at stake unless the environment says otherwise', () => {
    expect(secondsAtStake({})).toBe(600);
    expect(secondsAtStake({ OOMTUNE_RESTART_SECONDS: '60' })).toBe(60);
    expect(secondsAtStake({ OOMTUNE_RESTART_SECONDS: 'soon' })).toBe(600);
  });
});
