import fc from 'fast-check';
import { expect, it } from 'vitest';
import { closingSize } from '../../src/tuner/sizes.js';
import { constraints, found, type Job, MIB, search } from './machine.js';

const BUDGET = 300 * MIB;

/** MiB: what the program holds without a sample, and a sample; `most`: what a process that has run another size holds beside it at most, and which part of that at each size. */
const shapes = fc.record({
  resident: fc.integer({ min: 5, max: 200 }),
  perSample: fc.double({ min: 2, max: 6, noNaN: true }),
  most: fc.double({ min: 1, max: 12, noNaN: true }),
  worn: fc.array(fc.double({ min: 0.7, max: 1, noNaN: true }), { minLength: 1, maxLength: 12 }),
});

it('comes within 2 per cent or two samples of what fits, where processes that have run other sizes hold more than fresh ones, each another amount', () => {
  fc.assert(
    fc.property(shapes, ({ resident, perSample, most, worn }) => {
      const peak = (size: number) => Math.round(MIB * (resident + perSample * size));
      let turn = 0;
      const job: Job = {
        run: ({ micro_batch: size }, warm) => {
          const held = warm ? MIB * most * (worn[turn++ % worn.length] as number) : 0;
          const total = Math.round(peak(size) + held);
          if (total > BUDGET) return { outcome: 'device_oom' };
          return {
            outcome: 'fit',
            peaks: {
              total_bytes: total,
              forward_backward_bytes: total,
              optimizer_bytes: Math.round(MIB * (resident + 10) + held),
              resident_bytes: MIB * resident,
            },
          };
        },
      };
      const s = search(job, constraints({ budgetBytes: BUDGET }));
      const { max_micro_batch: largest } = found(s);
      expect(peak(largest)).toBeLessThanOrEqual(BUDGET);
      expect(
        peak(closingSize(largest) + 1),
        s.observations
          .map((o) => [o.launch, o.micro_batch, o.outcome, Math.round((o.peaks.total_bytes ?? 0) / MIB)])
          .join(' | '),
      ).toBeGreaterThan(BUDGET - MIB / 2);
      expect(s.probes.length).toBeLessThanOrEqual(20);
    }),
    { numRuns: 1000 },
  );
});
