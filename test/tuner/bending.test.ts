import { describe, expect, it } from 'vitest';
import { constraints, found, type Job, MIB, mostSizes, search } from './machine.js';

const BUDGET = 1000 * MIB;

/** Every byte is counted, phase by phase; `active`: the peak of forward and backward in a fresh process, bytes. */
function bending(active: (size: number) => number, warmer = 0): Job & { largest: number } {
  let largest = 1;
  while (active(largest + 1) <= BUDGET) largest += 1;
  return {
    largest,
    run: ({ micro_batch: microBatch }, warm) => {
      const bytes = active(microBatch) + (warm ? warmer : 0);
      if (bytes > BUDGET) return { outcome: 'device_oom' };
      return {
        outcome: 'fit',
        peaks: {
          total_bytes: bytes,
          forward_backward_bytes: bytes,
          optimizer_bytes: 50 * MIB,
          resident_bytes: 40 * MIB,
        },
      };
    },
  };
}

/** Another moment of the step becomes the highest at `at`, and rises `steeper` times as fast. */
const kinked = (at: number, steeper: number) => (size: number) =>
  40 * MIB + size * 0.5 * MIB + Math.max(0, size - at) * (steeper - 1) * 0.5 * MIB;

describe('a peak that bends', () => {
  it.each([
    ['where half of the limit was measured', kinked(1000, 1.3), 0],
    ['far below it', kinked(300, 2), 0],
    ['in a process that holds a little more than a fresh one', kinked(1000, 1.3), 8 * MIB],
    ['all along, with the square of the size', (size: number) => 40 * MIB + size * size * 1600, 0],
    [
      'all along, with much that grows in a line',
      (size: number) => 40 * MIB + size * 0.1 * MIB + size * size * 900,
      4 * MIB,
    ],
  ])('%s costs two launches, of which one at most runs out of memory', (_, active, warmer) => {
    const job = bending(active, warmer);
    const s = search(job, constraints({ budgetBytes: BUDGET }));
    expect(s.launches).toBe(2);
    expect(s.oomLaunches).toBeLessThanOrEqual(1);
    const { max_micro_batch: maxMicroBatch, config } = found(s);
    expect(maxMicroBatch).toBeLessThanOrEqual(job.largest);
    expect(maxMicroBatch).toBeGreaterThanOrEqual(Math.ceil(0.98 * job.largest));
    expect(active(config.micro_batch)).toBeLessThanOrEqual(0.97 * BUDGET);
    expect(mostSizes(s)).toBeLessThanOrEqual(8);
  });

  it('beyond what was measured costs two launches more, and no second failure', () => {
    const job = bending(kinked(1500, 1.5));
    const s = search(job, constraints({ budgetBytes: BUDGET }));
    expect([s.launches, s.oomLaunches]).toEqual([4, 1]);
    expect(found(s).max_micro_batch).toBeGreaterThanOrEqual(0.98 * job.largest);
    expect(found(s).max_micro_batch).toBeLessThanOrEqual(job.largest);
  });

  it('that no line foretells, in fresh processes too, is halved rather than followed', () => {
    // A wall: what is beyond it needs a hundred MiB more.
    const wall = (size: number) => 640 * MIB + size * 0.02 * MIB + (size > 700 ? 400 * MIB : 0);
    const s = search(bending(wall), constraints({ budgetBytes: BUDGET }));
    expect(found(s).max_micro_batch).toBeGreaterThanOrEqual(686);
    expect(found(s).max_micro_batch).toBeLessThanOrEqual(700);
    expect(s.oomLaunches).toBeLessThanOrEqual(8);
  });

  it('where each size is a launch, costs seven, and one of them fails', () => {
    // As a C++ program with libtorch 2.15 did on two cores (MiB by batch): beyond 960 a sample costs a quarter more than before.
    const seen: [number, number][] = [
      [1, 4.33],
      [30, 5.23],
      [960, 10.2],
      [18242, 128],
      [28682, 199.3],
      [60000, 413],
    ];
    const total = (size: number): number => {
      const at = Math.max(
        1,
        seen.findIndex(([x]) => x >= size),
      );
      const [[x0, y0], [x1, y1]] = [seen[at - 1], seen[at]] as [[number, number], [number, number]];
      return (y0 + ((size - x0) * (y1 - y0)) / (x1 - x0)) * MIB;
    };
    const job: Job = {
      run: ({ micro_batch: size }) =>
        total(size) > 200 * MIB
          ? { outcome: 'device_oom' }
          : {
              outcome: 'fit',
              peaks: {
                total_bytes: total(size),
                forward_backward_bytes: null,
                optimizer_bytes: null,
                resident_bytes: null,
              },
            },
    };
    const s = search(job, constraints({ budgetBytes: 200 * MIB, driven: false, switches: false, counted: true }), true);
    const { max_micro_batch: most } = found(s);
    expect(total(most)).toBeLessThanOrEqual(200 * MIB);
    expect(total(Math.ceil(1.02 * most) + 1)).toBeGreaterThan(200 * MIB);
    expect(s.launches).toBe(7);
  });
});
