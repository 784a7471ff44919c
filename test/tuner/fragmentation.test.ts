import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Probe } from '../../src/contract/measurement.js';
import { isCloseEnough, range } from '../../src/tuner/sizes.js';
import { gpuJob } from './gpu.js';
import { AS_IT_STANDS, constraints, found, GIB, mostSizes, search } from './machine.js';
import { networks } from './networks.js';
import { gpt2, vit } from './transformers.js';

/** At least 98 per cent of the truth, or within 1 below 50. */
function nearEnough(size: number, truth: number): boolean {
  return truth < 50 ? truth - size <= 1 : size >= 0.98 * truth;
}

describe('the pretended allocator', () => {
  const probe = (microBatch: number, steps: number): Probe => ({
    rung: AS_IT_STANDS,
    micro_batch: microBatch,
    accumulation: 1,
    steps,
    rest_steps: 0,
    fresh: true,
    purpose: 'climb',
    why: '',
  });

  it.each([
    [1, 3.801],
    [4, 5.945],
    [7, 8.154],
    [14, 13.377],
    [21, 19.131],
    [26, 23.266],
  ])('holds for GPT-2 at micro-batch %i what an H200 held: %f GiB', (size, gib) => {
    const { outcome, peaks } = gpuJob(gpt2(), 24 * GIB).run(probe(size, 3), false);
    expect(outcome).toBe('fit');
    expect(Math.abs((peaks?.total_bytes as number) / GIB / gib - 1)).toBeLessThan(0.015);
  });

  it('takes what a fresh process of GPT-2 took there, and nothing else: 30 fits, and none of 27, 28 and 29', () => {
    const job = gpuJob(gpt2(), 24 * GIB);
    const taken = Array.from({ length: 12 }, (_, n) => n + 24).filter((size) => job.lasts(size, 3));
    expect(taken).toEqual([24, 25, 26, 30]);
  });

  it('lets sizes near the limit last three steps and not ten', () => {
    const job = gpuJob(vit(), 24 * GIB);
    expect([332, 333, 334].map((size) => [job.lasts(size, 3), job.lasts(size, 10)])).toEqual([
      [true, true],
      [true, false],
      [true, false],
    ]);
  });
});

describe('under a caching allocator', () => {
  const budgets = [23, 23.7, 24, 24.3, 25];

  it.each([
    ['GPT-2', gpt2],
    ['ViT', vit],
  ])(
    'finds the largest size of %s in two launches and eight sizes, of which one at most runs out of memory, and it lasts',
    (_, model) => {
      for (const gib of budgets) {
        const job = gpuJob(model(), gib * GIB);
        const s = search(job, constraints({ budgetBytes: gib * GIB }));
        const { max_micro_batch: maxMicroBatch, config } = found(s);
        const truth = job.edge(10);
        expect(nearEnough(maxMicroBatch, truth), `${maxMicroBatch} of ${truth}`).toBe(true);
        expect(s.launches).toBe(2);
        expect(s.oomLaunches).toBeLessThanOrEqual(1);
        expect(mostSizes(s)).toBeLessThanOrEqual(8);
        expect(job.lasts(maxMicroBatch, 200)).toBe(true);
        expect(job.lasts(config.micro_batch, 200)).toBe(true);
      }
    },
  );

  it('answers only what lasts 200 steps in a fresh process, whatever the network', () => {
    fc.assert(
      fc.property(networks, fc.integer({ min: 6, max: 40 }), (network, gib) => {
        const job = gpuJob(network, gib * GIB);
        fc.pre(job.lasts(1, 10) && !job.lasts(2000, 2));
        const s = search(job, constraints({ budgetBytes: gib * GIB }));
        const { max_micro_batch: maxMicroBatch, config, known_bad_micro_batch: knownBad } = found(s);
        expect(job.lasts(maxMicroBatch, 200)).toBe(true);
        expect(job.lasts(config.micro_batch, 200)).toBe(true);
        expect(mostSizes(s)).toBeLessThanOrEqual(8);
        // No failure is needed where the line of the allocated bytes leaves no room.
        if (knownBad !== null) expect(isCloseEnough(maxMicroBatch, knownBad, range(1, null))).toBe(true);
      }),
      { numRuns: 150 },
    );
  });

  it('is proved by the second launch for most networks, with eight sizes a process', () => {
    const drawn = fc.sample(fc.tuple(networks, fc.integer({ min: 6, max: 40 })), { numRuns: 200, seed: 42 });
    const searches = drawn.flatMap(([network, gib]) => {
      const job = gpuJob(network, gib * GIB);
      return job.lasts(1, 10) && !job.lasts(2000, 2) ? [search(job, constraints({ budgetBytes: gib * GIB }))] : [];
    });
    expect(searches.length).toBeGreaterThan(100);
    const proved = searches.filter((s) => s.launches <= 2 && s.oomLaunches <= 1);
    expect(proved.length / searches.length).toBeGreaterThanOrEqual(0.75);
  });
});
