import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { JobOptions } from '../../src/contract/options.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const folder = mkdtempSync(join(tmpdir(), 'oomtune-chunked-'));

const bench = (purpose: 'find-batch' | 'run', weights: string, options: Partial<JobOptions>, ...besides: string[]) =>
  workbench(purpose, [python, 'vocabulary.py', join(folder, weights), ...besides], {
    ...{ budget: '60MiB', amp: 'off', checkpointing: 'off', accumulation: 'off' },
    ...options,
  });

/** The largest relative difference of a weight. */
const difference = (one: string, other: string): number =>
  Number(
    execFileSync(python, [
      '-c',
      'import sys, torch; a, b = map(torch.load, sys.argv[1:]); print(max(((a[k] - b[k]).abs().max() / a[k].abs().max()).item() for k in a))',
      join(folder, one),
      join(folder, other),
    ]),
  );

it('finds batches whose whole logits the device could not take', async () => {
  const { request, deps } = bench('find-batch', 'searched.pt', { minBatch: 16, maxBatch: 48 });
  const report = await findBatch(request, deps);
  expect(report.config).toMatchObject({ amp: 'off', checkpointing: false, chunked_loss: true });
  expect(report.max_micro_batch).toBe(48);
  expect(report.probes.map((p) => [p.outcome, p.chunked_loss ?? false])[0]).toEqual(['device_oom', false]);
  expect(report.probes.slice(1).every((p) => p.outcome === 'fit' && p.chunked_loss)).toBe(true);
});

it('runs a job to the weights of a plain run, at a batch that fits in no other way', async () => {
  execFileSync(python, ['vocabulary.py', join(folder, 'plain.pt')], { cwd: FIXTURES });
  const { request, deps } = bench('run', 'chunked.pt', {});
  const report = await runJob(request, deps);
  expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
  expect(report.config).toMatchObject({ micro_batch: 16, accumulation: 1, chunked_loss: true });
  expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(60 * 1024 ** 2);
  expect(difference('plain.pt', 'chunked.pt')).toBeLessThan(1e-5);
});

it('leaves the rung out where the script needs the logits, or --chunked-loss off forbids it', async () => {
  const wish = { minBatch: 4, maxBatch: 8, objective: 'throughput' } as const;
  const { request, deps } = bench('find-batch', 'read.pt', wish, 'best = logits.argmax(-1)');
  const report = await findBatch(request, deps);
  expect(report.status).toBe('found');
  expect(report.config).not.toHaveProperty('chunked_loss');
  expect(report.notes).toContain(
    'The loss is not computed in chunks: the logits are used by something else than cross-entropy (argmax).',
  );
  const off = bench('find-batch', 'off.pt', { ...wish, chunkedLoss: 'off' });
  const without = await findBatch(off.request, off.deps);
  expect(without.probes.some((p) => p.chunked_loss)).toBe(false);
});

it('says why a model with a large head has no such rung', async () => {
  const { request, deps } = bench('find-batch', 'other.pt', { budget: '400MiB', minBatch: 4, maxBatch: 4 }, 'Head');
  const report = await findBatch(request, deps);
  expect(report.status).toBe('found');
  expect(report.notes).toContain(
    'The loss is not computed in chunks: the last layer is no plain torch.nn.Linear (Head).',
  );
});
