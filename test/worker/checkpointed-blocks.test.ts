import { expect, it } from 'vitest';
import { explainRecommendation } from '../../src/cli/explain-view.js';
import { blockCount } from '../../src/contract/blocks.js';
import type { Observation } from '../../src/contract/measurement.js';
import type { JobOptions } from '../../src/contract/options.js';
import type { Recommendation } from '../../src/contract/recommendation.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const MIB = 1024 ** 2;

const bench = (purpose: 'find-batch' | 'run', options: Partial<JobOptions>) =>
  workbench(purpose, [python, 'deep.py'], { amp: 'off', ...options });

it('recomputes as few blocks as the wanted batch needs, and has that proved by a fresh process', async () => {
  const { request, deps, persisted, recorded } = bench('find-batch', {
    budget: '80MiB',
    minBatch: 2048,
    maxBatch: 2048,
  });
  const report = await findBatch(request, deps);
  expect(report.config).toMatchObject({ micro_batch: 2048, checkpointing: true });
  const blocks = report.config?.checkpointed_blocks as string;
  expect(blocks).toMatch(/^[\d,-]+\/40$/);
  expect(blockCount(blocks)).toBeLessThan(40);
  expect(report.peak_bytes).toBeLessThanOrEqual(80 * MIB);
  expect(report.probes.at(-1)).toMatchObject({ checkpointed_blocks: blocks, outcome: 'fit' });
  expect(report.apply?.env).toMatchObject({ OOMTUNE_CHECKPOINTING: '1', OOMTUNE_CHECKPOINTED_BLOCKS: blocks });
  // The costs that it was chosen by: 2048 x 128 numbers of four bytes are what each block keeps at least.
  const { journal } = persisted.findLast((patch) => 'journal' in patch) as { journal: Observation[] };
  const costs = journal.find((one) => one.blocks)?.blocks ?? [];
  expect(costs).toHaveLength(40);
  expect(costs.every(([bytes, seconds]) => bytes >= 0.9 * MIB && bytes < 8 * MIB && seconds > 0)).toBe(true);
  const [record] = recorded.values();
  expect(record).toMatchObject({ checkpointing: true, checkpointed_blocks: blocks });
  const told = explainRecommendation(record as Recommendation, (_style, text) => text);
  expect(told).toContain(`checkpointing of ${blockCount(blocks)}/40 blocks`);
});

it('runs a job to its end whose own batch needs some of them recomputed', async () => {
  const { request, deps } = bench('run', { budget: '140MiB', accumulation: 'off' });
  const report = await runJob(request, deps);
  expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
  expect(report.config).toMatchObject({ micro_batch: 4096, accumulation: 1, checkpointing: true });
  expect(report.config?.checkpointed_blocks).toMatch(/^[\d,-]+\/40$/);
  expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(140 * MIB);
});
