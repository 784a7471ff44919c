import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

function notes({ events }: ReturnType<typeof workbench>): string {
  return events.flatMap((event) => (event.type === 'note' ? [event.text] : [])).join('\n');
}

describe('a batch that cannot be cut', () => {
  it('is compared whole on the rungs with objective throughput, and runs', async () => {
    const bench = workbench('run', [python, 'mixing.py', '32'], { objective: 'throughput', budget: '70MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    expect(report.config).toMatchObject({ micro_batch: 2048, accumulation: 1, effective_batch: 2048 });
    expect(notes(bench)).toMatch(/depends on the other samples.*Only what takes the whole batch at once is tried\./);
    const [recorded] = bench.recorded.values();
    expect(recorded?.comparison?.together).toBe(true);
    expect(recorded?.comparison?.speeds.length).toBeGreaterThan(1);
    expect(recorded?.comparison?.speeds.every((one) => one.micro_batch === 2048)).toBe(true);
  });

  it('runs whole on a rung that it fits on', async () => {
    const bench = workbench('run', [python, 'mixing.py'], { budget: '80MiB', amp: 'off' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    expect(report.config).toMatchObject({ micro_batch: 2048, accumulation: 1, amp: 'off', checkpointing: true });
  });

  it('says what to do where it fits on none', async () => {
    const bench = workbench('run', [python, 'mixing.py'], { budget: '80MiB', amp: 'off', checkpointing: 'off' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', failure: { class: 'user_error' } });
    expect(report.failure?.advice).toContain('--cut loader');
    expect(report.failure?.evidence).toContain('depends on the other samples');
  });

  it('ends with that reason alone, not with the last words of what was tried whole after it', async () => {
    const bench = workbench('run', [python, 'mixing.py'], { budget: '50MiB', amp: 'off' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, signal: null, failure: { class: 'user_error' } });
    expect(bench.events.filter(({ type }) => type === 'probe').length).toBeGreaterThan(1);
    // (what the job itself had run out of memory with is told once, before the search)
    expect(notes(bench)).toContain('Only what takes the whole batch at once is tried.');
    expect(notes(bench).split('Only what takes the whole batch')[1]).not.toMatch(/File "|alloc_cpu|^\^+$/m);
  });

  it('in half precision alone is not why nothing fits', async () => {
    const bench = workbench('run', [python, 'mixed_dtypes.py'], { budget: '40MiB', checkpointing: 'off' });
    const report = await runJob(bench.request, bench.deps);
    expect(notes(bench)).toContain('gotFloat and BFloat16');
    expect(report).toMatchObject({ outcome: 'exhausted', failure: { class: 'device_oom' } });
    expect(report.failure?.advice).toContain('larger --budget');
  });

  it('is told as whole where none of the model’s calls was cut', async () => {
    const bench = workbench('run', [python, 'uncalled.py'], { budget: '40MiB', amp: 'off', checkpointing: 'off' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'exhausted', failure: { class: 'device_oom' } });
    expect(report.failure?.advice).toMatch(/The whole batch had come to .* No call of a model was cut before that/);
  });
});
