import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

describe('a job that runs out of memory', () => {
  it.each([
    ['in an evaluation without gradients, written in line', 'no_grad', 'eval', 'no_grad'],
    ['in an evaluation of a model in evaluation mode, written in line', 'eval', 'eval', 'smaller batch'],
    ['while it saves', 'save', 'save', 'sharded'],
  ])('%s is told so, and its training size is not made smaller', async (_, how, phase, remedy) => {
    const bench = workbench('run', [python, 'evaluates.py', how], { budget: '80MiB', timeoutSeconds: 100 });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, config: { micro_batch: 64 } });
    expect(report.failure).toMatchObject({ class: 'device_oom', phase, reason: phase, cure: 'none' });
    expect(report.failure?.advice).toContain(remedy);
    expect(report.launches).toBe(2);
    expect([...bench.recorded.values()]).toMatchObject([{ status: 'verified' }]);
  });
});
