import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

describe('a script whose own batch does not fit', () => {
  it.each([
    ['85MiB', 256],
    ['70MiB', 128],
  ])('under %s runs at the largest part of it that fits, %i, found in one search of one life', async (budget, size) => {
    const bench = workbench('run', [python, 'wide.py'], { budget });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    expect(report.config).toMatchObject({ micro_batch: size, accumulation: 1024 / size, effective_batch: 1024 });
    // The job itself, which shows that the batch does not fit, and the job again; the size is found in a fork that the first has left.
    expect(report.launches).toBe(2);
    const probes = bench.events.flatMap((event) => (event.type === 'probe' ? [event.observation] : []));
    expect(probes[0]).toMatchObject({ launch: 1, life: 1, micro_batch: 1024, outcome: 'device_oom' });
    expect(probes.slice(1).every(({ life, outcome }) => life === 2 && outcome === 'fit')).toBe(true);
    // Twice as much is predicted, from what was measured, not to leave the headroom.
    expect(probes.at(-1)?.micro_batch).toBe(size);
    const launches = bench.persisted.flatMap((patch) =>
      'launches' in patch ? (patch.launches as { dir: string; purpose: string }[]) : [],
    );
    const log = readFileSync(join(launches.findLast(({ purpose }) => purpose === 'run')?.dir as string, 'log'), 'utf8');
    expect(log).toMatch(/^epoch 0 step 4 .*\nepoch 1 step 8 /);
  });

  it('keeps batches of no one size, too, which are cut into micro-batches that fit', async () => {
    const bench = workbench('run', [python, 'unlike.py'], { budget: '80MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, cut: { cut: 'model' } });
    expect(report.config?.accumulation).toBe(1);
    const launches = bench.persisted.flatMap((patch) =>
      'launches' in patch ? (patch.launches as { dir: string; purpose: string }[]) : [],
    );
    const log = readFileSync(join(launches.findLast(({ purpose }) => purpose === 'run')?.dir as string, 'log'), 'utf8');
    expect(log).toContain('sizes [1024, 512, 1024, 1024, 1024, 512]');
  });
});
