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
const saved = join(mkdtempSync(join(tmpdir(), 'oomtune-allowed-')), 'saved.pt');
const MIB = 1024 ** 2;

// Weights, gradients and two moments take 17 MiB each in single precision.
const bench = (purpose: 'find-batch' | 'run', options: Partial<JobOptions>) =>
  workbench(purpose, [python, 'moments.py', saved], { budget: '62MiB', minBatch: 8, maxBatch: 8, ...options });

it('turns on nothing that has to be allowed, where nothing else is left', async () => {
  const { request, deps } = bench('find-batch', {});
  const report = await findBatch(request, deps);
  expect(report.status).toBe('exhausted');
  expect(report.probes.some((probe) => probe.optimizer_8bit || probe.bf16_weights)).toBe(false);
});

it('holds the weights in bf16 where that is allowed and needed, and what is saved is read without oomtune', async () => {
  const { request, deps } = bench('run', { allow: ['bf16-weights'] });
  const report = await runJob(request, deps);
  expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
  expect(report.config).toMatchObject({ micro_batch: 8, amp: 'bf16', bf16_weights: true });
  expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(62 * MIB);
  // The script itself, alone, goes on from it.
  const told = execFileSync(python, ['moments.py', saved], { cwd: FIXTURES, encoding: 'utf8' });
  expect(told).toContain('weights in torch.float32');
  expect(told).toContain('steps 16');
}, 600_000);

it('says how to get what was allowed and is not installed', async () => {
  const { request, deps } = bench('find-batch', { budget: '400MiB', allow: ['8bit-optimizer'] });
  const report = await findBatch(request, deps);
  expect(report.config).toMatchObject({ micro_batch: 8, amp: 'off', checkpointing: false });
  expect(report.notes).toContain(
    '8bit-optimizer cannot be had: no bitsandbytes is installed: pip install bitsandbytes.',
  );
});

it('ends a job whose recorded configuration needs what is not installed any more before it trains, and says so', async () => {
  // As a search found it, where bitsandbytes was there.
  const { request, deps } = bench('run', { budget: '400MiB', allow: ['8bit-optimizer'] });
  const { recommendations } = await deps.records();
  const { key } = await findBatch(bench('find-batch', { budget: '400MiB' }).request, deps);
  const recorded = await recommendations.get(key as string);
  if (recorded === null) throw new Error(`nothing is recorded as ${key}`);
  await recommendations.put({ ...recorded, optimizer_8bit: true }, null);
  const report = await runJob(request, deps);
  expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, launches: 1 });
  expect(report.failure).toMatchObject({
    class: 'user_error',
    evidence:
      "The optimizer's moments cannot be held in 8 bits: no bitsandbytes is installed: pip install bitsandbytes.",
  });
  expect(report.failure?.advice).toContain('--allow 8bit-optimizer');
});
