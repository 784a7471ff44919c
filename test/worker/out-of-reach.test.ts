import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

describe('a size that does not reach the script', () => {
  it('is said to be that, where its flag is not recognised, and not that nothing fits', async () => {
    const bench = workbench('find-batch', [python, 'ignores_flags.py', '--batch', '{micro_batch}'], {
      budget: '38MiB',
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('failed');
    expect(report.failure?.class).toBe('user_error');
    expect(report.failure?.evidence).toBe(
      'Micro-batch 1 was asked for, the script ran with 64: its flag was not recognised.',
    );
    expect(report.launches).toBe(1);
  });

  it('is said to be that where it fits all the same, and not recommended', async () => {
    const bench = workbench('find-batch', [python, 'ignores_flags.py', '--batch', '{micro_batch}'], {
      budget: '90MiB',
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'failed', config: null, failure: { class: 'user_error' } });
    expect(report.failure?.evidence).toMatch(
      /^Micro-batches \d+ and \d+ were asked for, the script ran with 64 both times: its flag was not recognised\.$/,
    );
    expect(report.failure?.advice).toContain('{micro_batch}');
    expect(report.launches).toBeLessThanOrEqual(4);
    expect(bench.recorded.size).toBe(0);
  });

  it.each(['find-batch', 'run'] as const)(
    'is said to be that in a loop without a DataLoader and without a model, by %s',
    async (verb) => {
      const bench = workbench(verb, [python, join('by_hand', 'no_module.py')], { budget: '24MiB' });
      const report = await (verb === 'run' ? runJob(bench.request, bench.deps) : findBatch(bench.request, bench.deps));
      expect(report.failure?.class).toBe('user_error');
      expect(report.failure?.evidence).toContain('ran out of memory at a batch of its own');
      expect(report.failure?.advice).toContain('{micro_batch}');
      // run as it stands first, which ran out of memory
      expect(report.launches).toBe(verb === 'run' ? 2 : 1);
    },
  );

  it('is said to be that where the script steps its weights without an optimizer', async () => {
    const bench = workbench('run', [python, join('by_hand', 'stepped_by_hand.py')], { budget: '40MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report.failure?.class).toBe('user_error');
    expect(report.failure?.cause).toContain('before it had made a torch optimizer');
    expect(report.failure?.advice).toContain('torch.optim.SGD');
  });

  it('is not followed by another run as it stands where that is known to run out of memory', async () => {
    const bench = workbench('run', [python, 'whole_batches.py'], { budget: '38MiB', cut: 'loader' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'exhausted', exit_code: null, failure: { class: 'device_oom' } });
    expect(report.failure?.cause).toContain('ran out of memory at its own batch of 64');
    expect(report.failure?.advice).toContain('{micro_batch}');
    expect(bench.events.filter((event) => event.type === 'running')).toHaveLength(1);
  });
});
