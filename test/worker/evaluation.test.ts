import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

describe('a job that runs out of memory', () => {
  it.each([
    ['in an evaluation without gradients, written in line', 'no_grad', 'eval', 'a smaller batch of its own'],
    ['in an evaluation of a model in evaluation mode, written in line', 'eval', 'eval', 'smaller batch'],
    ['while it generates', 'generate', 'eval', 'a smaller batch of its own'],
    ['while it saves', 'save', 'save', 'in parts'],
  ])('%s is told so, and its training size is not made smaller', async (_, how, phase, remedy) => {
    const bench = workbench('run', [python, 'evaluates.py', how], { budget: '80MiB', timeoutSeconds: 100 });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, config: { micro_batch: 64 } });
    expect(report.failure).toMatchObject({ class: 'device_oom', phase, reason: phase, cure: 'none' });
    expect(report.failure?.advice).toContain(remedy);
    // Where gradients are off already, that is no advice.
    expect(report.failure?.advice?.includes('no_grad')).toBe(how === 'eval');
    expect(report.launches).toBe(1);
    expect([...bench.recorded.values()]).toMatchObject([{ status: 'verified' }]);
  });

  it.each([
    ['sum', 'in small requests'],
    ['gather', 'in one that is larger than all there is'],
  ])('after its training loop (%s) is told so, and its training size is not made smaller: %s', async (how) => {
    const report = await beside(how);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, config: { micro_batch: 64 }, launches: 1 });
    expect(report.failure).toMatchObject({ class: 'device_oom', phase: 'unknown', reason: 'after', cure: 'none' });
    expect(report.failure?.cause).toContain('No training step was under way');
    expect(report.failure?.advice).toContain('in parts');
  });

  it('while it writes a copy of its state into memory did not fill a disk', async () => {
    const report = await beside('save');
    expect(report).toMatchObject({ outcome: 'failed', config: { micro_batch: 64 }, launches: 1 });
    expect(report.failure).toMatchObject({ class: 'device_oom', cure: 'none' });
  });

  it('before its first step is told so after one launch: no knob that is turned on at that step helps', async () => {
    const report = await beside('build');
    expect(report).toMatchObject({ outcome: 'exhausted', launches: 1 });
    expect(report.failure).toMatchObject({ class: 'device_oom', phase: 'load', reason: 'load' });
  });

  it('in a training step, of a request that is the same at half the size, gets no smaller one again', async () => {
    const report = await beside('fixed');
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, config: { micro_batch: 32 }, launches: 2 });
    expect(report.failure).toMatchObject({ class: 'device_oom', phase: 'train', reason: 'asked' });
    expect(report.failure?.advice).toContain('shapes');
  });

  it('in gradients of its samples, which a step asks of its model in evaluation mode, gets smaller calls of it', async () => {
    const bench = workbench('run', [python, 'attacks.py'], { budget: '20MiB', amp: 'off', timeoutSeconds: 100 });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, config: { effective_batch: 1024 } });
    expect(report.config?.micro_batch).toBeLessThan(1024);
  });

  it('in what the script itself computes in a step gets a smaller size', async () => {
    const report = await beside('own');
    expect(report.config?.micro_batch).toBeLessThan(64);
    expect(report.failure).toMatchObject({ class: 'device_oom', phase: 'train', cure: 'smaller' });
  });

  async function beside(how: string) {
    const bench = workbench('run', [python, 'beside.py', how], { budget: '80MiB', timeoutSeconds: 100 });
    return runJob(bench.request, bench.deps);
  }
});
