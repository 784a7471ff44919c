import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const command = [pythonWithTorch(), 'limited.py'];

describe('a limit of the machine far below the budget', () => {
  it('ends a run as it stands, and nothing smaller is tried for it', async () => {
    const bench = workbench('run', command, { budget: '2GiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', launches: 1 });
    expect(report.failure).toMatchObject({ class: 'host_oom', reason: 'limit', cure: 'none' });
    expect(report.failure?.advice).toContain('ulimit -v');
  });

  it('is a size too large where a smaller one fitted', async () => {
    const bench = workbench('find-batch', command, { budget: '2GiB', amp: 'off', checkpointing: 'off' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    expect(report.max_micro_batch).toBeLessThan(4096);
    expect(report.probes.map(({ outcome }) => outcome)).toContain('device_oom');
  });
});
