import { expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

it('what is found for a loop of which one step in ten takes the most lasts for sixty steps', async () => {
  const bench = workbench('find-batch', [python, 'varies.py', '4'], { budget: '70MiB' });
  const { status, failure, max_micro_batch: most, verified_steps: steps } = await findBatch(bench.request, bench.deps);
  expect(status, failure?.evidence ?? '').toBe('found');
  expect(steps).toBeGreaterThanOrEqual(10);
  const run = workbench('run', [python, 'varies.py', String(most)], { budget: '70MiB', tune: false });
  expect(await runJob(run.request, run.deps)).toMatchObject({ outcome: 'succeeded', launches: 1 });
  const more = Math.ceil((most as number) * 1.03) + 1;
  const larger = workbench('run', [python, 'varies.py', String(more)], { budget: '70MiB', tune: false });
  expect(await runJob(larger.request, larger.deps)).toMatchObject({ outcome: 'failed' });
});
