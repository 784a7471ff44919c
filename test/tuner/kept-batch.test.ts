import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { divisors } from '../../src/tuner/index.js';
import { BUDGET, jobOf, smooth } from './generated.js';
import { constraints, found, search } from './machine.js';

const HEADROOM = 3;

describe('a job whose own batch does not fit', () => {
  it('gets the largest micro-batch that leaves the headroom, and never a much smaller one', () => {
    fc.assert(
      fc.property(
        smooth.filter((shape) => shape.phases),
        fc.constantFrom(64, 96, 100, 256, 1000, 1024, 4096),
        (shape, own) => {
          const job = jobOf(shape);
          const peak = (size: number) => Math.max(shape.resident + shape.optimizer, shape.resident + shape.gradients + size * shape.perSample);
          const roomy = divisors(own).filter((size) => size < own && peak(size) <= BUDGET * (1 - HEADROOM / 100));
          fc.pre(!job.fits(own, 1) && roomy.length > 0);
          const c = constraints({ budgetBytes: BUDGET, goal: 'keep', ownBatch: own, headroomPct: HEADROOM });
          const s = search(job, c);
          expect(found(s).config).toMatchObject({ micro_batch: roomy.at(-1), effective_batch: own });
          expect(s.launches).toBeLessThanOrEqual(4);
        },
      ),
      { numRuns: 3000 },
    );
  });
});
