import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { divisors } from '../../src/tuner/index.js';
import { BUDGET, jobOf, type Shape, smooth } from './generated.js';
import { constraints, found, MIB, search } from './machine.js';

const HEADROOM = 3;
const own = fc.constantFrom(64, 96, 100, 256, 1024, 4096);
const counted = smooth.filter((shape) => shape.phases);

function kept(shape: Shape, ownBatch: number) {
  return search(jobOf(shape), constraints({ budgetBytes: BUDGET, goal: 'keep', ownBatch, headroomPct: HEADROOM }));
}

function peakOf(shape: Shape, size: number): number {
  return Math.max(shape.resident + shape.optimizer, shape.resident + shape.gradients + size * shape.perSample);
}

describe('a job whose own batch does not fit', () => {
  it('gets the largest micro-batch that leaves the headroom', () => {
    fc.assert(
      fc.property(counted, own, (shape, size) => {
        const room = BUDGET * (1 - HEADROOM / 100);
        const roomy = divisors(size).filter((one) => one < size && peakOf(shape, one) <= room);
        fc.pre(!jobOf(shape).fits(size) && roomy.length > 0);
        const s = kept(shape, size);
        expect(found(s).config).toMatchObject({ micro_batch: roomy.at(-1), effective_batch: size });
        expect(s.launches).toBeLessThanOrEqual(5);
      }),
      { numRuns: 1500 },
    );
  });

  it('is not cut into single samples where its weights leave no size the headroom', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 4, max: 60 }).map((n) => n * 1024),
        fc.integer({ min: 5, max: 40 }).map((n) => n * MIB),
        fc.constantFrom(256, 1024, 4096),
        (perSample, left, size) => {
          const resident = BUDGET - left;
          const shape = { ...plain, resident, perSample };
          fc.pre(!jobOf(shape).fits(size) && jobOf(shape).fits(1, 2));
          const { config, notes } = found(kept(shape, size));
          // What is left free is about half of what a single sample would leave.
          const enough = divisors(size).filter((one) => peakOf(shape, one) <= BUDGET - (left - perSample) / 2);
          expect(config.micro_batch).toBe(enough.at(-1));
          expect(notes.join(' ')).toContain('No size leaves the headroom');
        },
      ),
      { numRuns: 300 },
    );
  });
});

const plain: Shape = {
  resident: 0,
  optimizer: 0,
  perSample: 0,
  gradients: 0,
  kinkAt: 0,
  kinkSlope: 1,
  stepAt: 0,
  stepBytes: 0,
  fragmentation: 0,
  workspaceBytes: 0,
  workspaceEvery: 1,
  noise: 0,
  warmLoss: 0,
  phases: true,
  caching: false,
  telemetry: true,
};
