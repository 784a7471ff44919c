import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ROOT } from '../store/home.js';

const { trace, ALL_KINDS } = await import(join(ROOT, 'bench/sharing/trace.mjs'));

interface TraceJob {
  at: number;
  kind: string;
  arrives: number;
  trains: number;
}

test('the trace has all its jobs in time, trains as long as it is told to, and is the same for the same seed', () => {
  const plans = fc.record({
    jobs: fc.integer({ min: 90, max: 300 }),
    trainSeconds: fc.integer({ min: 10, max: 1000 }),
    arriveSeconds: fc.integer({ min: 1, max: 500 }),
    seed: fc.integer({ min: 0, max: 2 ** 31 }),
  });
  fc.assert(
    fc.property(plans, (plan) => {
      const jobs: TraceJob[] = trace(plan);
      expect(jobs).toHaveLength(plan.jobs);
      expect(jobs.reduce((sum, job) => sum + job.trains, 0)).toBeCloseTo(plan.trainSeconds, 6);
      expect(jobs[0]?.arrives).toBe(0);
      expect(jobs.at(-1)?.arrives).toBeCloseTo(plan.arriveSeconds, 6);
      expect(jobs.every((job, at) => job.arrives >= (jobs[at - 1]?.arrives ?? 0))).toBe(true);
      expect(new Set(jobs.map(({ kind }) => kind)).size).toBe(ALL_KINDS.length);
      expect(trace(plan)).toEqual(jobs);
    }),
    { numRuns: 50 },
  );
});

test('durations keep the quantiles of the published trace, whatever their scale', () => {
  const jobs: TraceJob[] = trace({ jobs: 190, trainSeconds: 1000, arriveSeconds: 100 });
  const sorted = jobs.map(({ trains }) => trains).sort((a, b) => a - b);
  // Of the part up to 95 %: the median is at 100 of 190, what 90 % do not reach at 180
  expect((sorted[180] as number) / (sorted[100] as number)).toBeGreaterThan(0.85 * (7240 / 655));
  expect((sorted[180] as number) / (sorted[100] as number)).toBeLessThan(1.2 * (7240 / 655));
});

test('a replay runs every job of a small trace in both modes, with the same steps and none out of memory', () => {
  const out = mkdtempSync(join(tmpdir(), 'oomtune-replayed-'));
  try {
    const words = [
      '--dry',
      '--kinds',
      'mlp,bert',
      '--jobs',
      '4',
      '--train-seconds',
      '2',
      '--arrive-seconds',
      '1',
      '--out',
      out,
    ];
    execFileSync(process.execPath, [join(ROOT, 'bench/sharing/run.mjs'), ...words], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const rows = readFileSync(join(out, 'sharing-gpu.jsonl'), 'utf8').trim().split('\n');
    const modes = rows.map((row) => JSON.parse(row)).filter(({ row }) => row === 'mode');
    expect(modes.map(({ mode, succeeded, oom_errors }) => ({ mode, succeeded, oom_errors }))).toEqual([
      { mode: 'exclusive', succeeded: 4, oom_errors: 0 },
      { mode: 'packed', succeeded: 4, oom_errors: 0 },
    ]);
    expect(modes[0].steps).toBe(modes[1].steps);
    expect(readFileSync(join(out, 'sharing-gpu.md'), 'utf8')).toContain('| jobs that succeeded | 4 of 4 | 4 of 4 |');
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}, 400_000);
