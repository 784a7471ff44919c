import { describe, expect, it } from 'vitest';
import { Fragmentation, remedyFor } from '../../src/worker/run/fragmentation.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const GIB = 1024 ** 3;

/** The steps that it tells of, by what the allocator holds and how often it has tried again, at each step. */
function told(reserved: (step: number) => number, retries: (step: number) => number = () => 0, peak = 15): number[] {
  const fragmentation = new Fragmentation(24 * GIB, remedyFor(false));
  const steps: number[] = [];
  for (let n = 1; n <= 200; n += 1) {
    const figures = { reserved_bytes: reserved(n) * GIB, allocated_peak_bytes: peak * GIB, alloc_retries: retries(n) };
    if (fragmentation.add({ t: 'step', n, samples: n, ...figures }) !== null) steps.push(n);
  }
  return steps;
}

describe('memory that falls to pieces', () => {
  it('is told once most of the budget is held, and a tenth of it more in pieces than at first', () => {
    expect(told((step) => 16 + 0.05 * step)[0]).toBe(65);
  });

  it('is not told of where it came to rest, however much is held, or while there is room', () => {
    expect(told(() => 23.5)).toEqual([]);
    expect(told((step) => Math.min(23.5, 16 + step))).toEqual([]);
    expect(told((step) => 2 + 0.05 * step, undefined, 1)).toEqual([]);
  });

  it('is told of where the allocator goes on giving its cache back', () => {
    expect(
      told(
        () => 23,
        (step) => (step >= 50 ? 1 : 0) + (step >= 90 ? 1 : 0),
      )[0],
    ).toBe(90);
    expect(
      told(
        () => 23,
        (step) => (step >= 5 ? 3 : 0),
      ),
    ).toEqual([]);
  });

  it('is said once in a run, with figures and the remedy', async () => {
    const bench = workbench('run', [pythonWithTorch(), 'piecemeal.py'], { budget: '200MiB' });
    await runJob(bench.request, bench.deps);
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes.filter((text) => text.startsWith('Memory lies in pieces'))).toEqual([
      "Memory lies in pieces, and the job may run out of it: at step 20 torch's allocator holds 160 MiB of a budget of 200 MiB, of which 60 MiB were in no tensor at any time, 20 MiB more than at step 10. Segments that can grow keep it in one: --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ]);
  });
});
