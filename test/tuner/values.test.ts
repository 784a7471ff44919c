import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { roundNumbers } from '../../src/tuner/sizes.js';
import { contextJobs, STEP } from './contexts.js';
import { gpuJob } from './gpu.js';
import { constraints, found, GIB, type Job, MIB, search } from './machine.js';
import { networks } from './networks.js';

const BUDGET = 16 * GIB;

/** Each value is a launch that shows its highest peak: that of forward and backward, if it is above the optimizer's. */
function valued(bytes: (value: number) => number, optimizer = 0, phased = true): Job & { largest: number } {
  const peak = (value: number) => Math.max(bytes(value), optimizer);
  let largest = 1;
  while (largest < 2 ** 20 && peak(largest + 1) <= BUDGET) largest += 1;
  const phases = (value: number) =>
    phased ? { forward_backward_bytes: bytes(value), optimizer_bytes: optimizer } : {};
  return {
    largest,
    run: ({ micro_batch: value }) =>
      peak(value) > BUDGET
        ? { outcome: 'device_oom' }
        : { outcome: 'fit', peaks: { total_bytes: peak(value), ...phases(value) } },
  };
}

const values = (patch: object = {}) =>
  constraints({ budgetBytes: BUDGET, driven: false, value: { multipleOf: null, first: 64 }, ...patch });

const KIB = 1024;

describe('the largest value of a knob, each a launch', () => {
  it.each([
    ['in a line', (v: number) => 3 * GIB + v * 0.7 * MIB, 6],
    ['in a line, from next to nothing', (v: number) => 40 * MIB + v * 90 * KIB, 6],
    ['with the square', (v: number) => 3 * GIB + v * v * 300, 4],
    ['with the square and a line', (v: number) => 2 * GIB + v * 0.4 * MIB + v * v * 60, 6],
    ['with the square, from nearly full', (v: number) => 14 * GIB + v * 0.4 * MIB + v * v * 60, 7],
    ['with the square, far off', (v: number) => 100 * MIB + v * 4 * KIB + v * v, 6],
    ['above a floor of the optimizer', (v: number) => Math.max(9 * GIB, 4 * GIB + v * MIB), 8],
    ['by very much for each', (v: number) => GIB + v * 4000 * MIB, 6],
  ])('whose memory rises %s is found within 2 %% in few', (_, bytes, most) => {
    const job = valued(bytes);
    const s = search(job, values(), true);
    const { max_micro_batch: max, config } = found(s);
    expect(max).toBeLessThanOrEqual(job.largest);
    expect(max).toBeGreaterThanOrEqual(Math.floor(job.largest / 1.02) - 2);
    expect(bytes(config.micro_batch)).toBeLessThanOrEqual(0.97 * BUDGET);
    expect(bytes(config.micro_batch)).toBeGreaterThanOrEqual(Math.min(0.93 * BUDGET, bytes(max)));
    expect(s.launches).toBeLessThanOrEqual(most);
    expect(s.oomLaunches).toBeLessThanOrEqual(bytes(64) > BUDGET ? 4 : 1);
  });

  it.each([
    ['told apart', true, 5],
    ['not told apart', false, 11],
  ])('is found above what the optimizer takes, where the phases are %s', (_, phased, most) => {
    const job = valued((v) => 4 * GIB + v * MIB, 9 * GIB, phased);
    const s = search(job, values(), true);
    const { max_micro_batch: max } = found(s);
    expect(max).toBeLessThanOrEqual(job.largest);
    expect(max).toBeGreaterThanOrEqual(Math.floor(job.largest / 1.02) - 2);
    expect(s.launches).toBeLessThanOrEqual(most);
  });

  it.each([true, false])(
    'is not sought far above what fits where a larger one takes less than one near it (%s)',
    (phased) => {
      for (let seed = 0; seed < 60; seed += 1) {
        // A model on a CPU, whose processes take up to 1.5 MiB more or less than others.
        const bytes = (v: number) => (30 + v * 0.0286 + 1.5 * Math.sin(seed + v * 12.9898)) * MIB;
        const job: Job = {
          run: ({ micro_batch: v }) =>
            bytes(v) > 160 * MIB
              ? { outcome: 'device_oom' }
              : {
                  outcome: 'fit',
                  peaks: { total_bytes: bytes(v), ...(phased ? { forward_backward_bytes: bytes(v) } : {}) },
                },
        };
        const s = search(job, values({ budgetBytes: 160 * MIB, value: { multipleOf: 64, first: 64 } }), true);
        expect(Math.max(...s.probes.map((probe) => probe.micro_batch))).toBeLessThanOrEqual(
          1.1 * found(s).max_micro_batch,
        );
        expect(s.launches).toBeLessThanOrEqual(9);
      }
    },
  );

  it.each([8, 48])('is a multiple of %i where it has to be', (multipleOf) => {
    const job = valued((v) => 3 * GIB + v * v * 300);
    const s = search(job, values({ minBatch: 10, value: { multipleOf, first: 64 } }), true);
    expect(s.observations.map((o) => o.micro_batch % multipleOf)).toEqual(s.observations.map(() => 0));
    expect(found(s).max_micro_batch).toBe(job.largest - (job.largest % multipleOf));
  });

  it('is the largest that may be where all fit', () => {
    const s = search(
      valued((v) => GIB + v * MIB),
      values({ maxBatch: 1000 }),
      true,
    );
    expect(found(s).max_micro_batch).toBe(1000);
    expect(s.oomLaunches).toBe(0);
  });
});

describe('the largest value where a caching allocator fills the budget with what it keeps', () => {
  const drawn = fc.sample(fc.tuple(networks, fc.integer({ min: 6, max: 40 })), { numRuns: 60, seed: 7 });
  const devices = drawn
    .map(([network, gib]) => gpuJob(network, gib * GIB))
    .filter((gpu) => gpu.lasts(1, 10) && !gpu.lasts(2000, 2));

  it.each([
    ['segments that can grow', 'possible', false, 8, 5.7],
    ['libraries that do with less', 'possible', true, 8, 5.7],
    ['segments that cannot grow', undefined, false, 13, 7.6],
  ] as const)('with %s is found without a value far above it', (_, expandable, flexible, most, mean) => {
    const searches = devices.map((gpu) => {
      const job: Job = {
        run: (probe, warm) => {
          const ran = gpu.run(probe, warm);
          // Before torch 2.1 no history tells what libraries need, nor what lies in pieces.
          const peaks = ran.peaks && { ...ran.peaks, pieces_bytes: null };
          return flexible ? { ...ran, flexible_workspaces: true, ...(peaks ? { peaks } : {}) } : ran;
        },
      };
      const value = { multipleOf: null, first: 1 };
      const c = constraints({
        budgetBytes: gpu.budgetBytes,
        driven: false,
        value,
        ...(expandable ? { expandable } : {}),
      });
      const searched = search(job, c, true);
      const { max_micro_batch: max } = found(searched);
      // Where segments cannot grow, fragments may come to lie otherwise after steps that were all alike.
      expect(gpu.lasts(max, expandable ? 10 : 4, expandable !== undefined)).toBe(true);
      const { launches, observations } = searched;
      const highest = Math.max(...observations.map((one) => one.micro_batch));
      return { launches, times: max < 20 ? 1 : highest / max };
    });
    expect(searches.length).toBeGreaterThan(40);
    expect(Math.max(...searches.map(({ launches }) => launches))).toBeLessThanOrEqual(most);
    expect(searches.reduce((sum, { launches }) => sum + launches, 0) / searches.length).toBeLessThanOrEqual(mean);
    expect(Math.max(...searches.map(({ times }) => times))).toBeLessThanOrEqual(1.25);
  });
});

describe('the longest context of a Llama of 8B parameters, as an H200 ran it', () => {
  const searches = contextJobs().map((job) => {
    const value = { multipleOf: STEP, first: job.first };
    const c = constraints({
      budgetBytes: job.budgetBytes,
      minBatch: job.first,
      driven: false,
      value,
      expandable: 'possible',
    });
    return { ...job, searched: search(job, c, true) };
  });

  it.each(searches)('$name: is found within 2 %', ({ longest, searched }) => {
    const { max_micro_batch: max } = found(searched);
    expect(max).toBeLessThanOrEqual(longest);
    expect(max).toBeGreaterThanOrEqual(longest / 1.02 - STEP);
    expect(searched.launches).toBeLessThanOrEqual(8);
  });

  it('takes five launches in the mean', () => {
    const launches = searches.map(({ searched }) => searched.launches);
    expect(launches.reduce((sum, one) => sum + one, 0) / launches.length).toBeLessThanOrEqual(5.3);
  });
});

describe('round numbers', () => {
  it('are as round as 2 per cent allow, and hold both ends', () => {
    const sizes = roundNumbers(7, 5001);
    expect([3, 7, 99, 101, 1000, 1601, 3199, 4999, 9999].map((size) => sizes.down(size))).toEqual([
      null,
      7,
      99,
      100,
      992,
      1600,
      3168,
      4992,
      5001,
    ]);
    expect([3, 99, 101, 1000, 3199, 4999, 5002].map((size) => sizes.up(size))).toEqual([
      7,
      99,
      102,
      1008,
      3200,
      5001,
      null,
    ]);
  });

  it('go up and down by the same members', () => {
    const sizes = roundNumbers(5, 9000);
    for (let size = 6; size < 9000; size += 1) {
      const down = sizes.down(size) as number;
      expect(sizes.up(down)).toBe(down);
      const up = sizes.up(size) as number;
      expect(sizes.down(up)).toBe(up);
      expect(up - down).toBeLessThanOrEqual(Math.max(1, size / 50 + 1));
    }
  });
});
