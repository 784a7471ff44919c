import { expect, it } from 'vitest';
import { constraints, found, type Job, MIB, search } from './machine.js';

/**
 * Peaks in bytes by size, as flax's seq2seq example was measured on the CPU device under 1200 MiB: XLA's threads hold more in one
 * process than in the next, and each size is a launch.
 */
const MEASURED: Record<number, number> = {
  1: 123520139,
  8: 109551143,
  64: 101890591,
  512: 116548319,
  4096: 564281895,
  9647: 1229898287,
  9879: 692916407,
  14589: 992072683,
  14887: 1011400847,
  16941: 1143881483,
  17574: 1184751055,
};

const job: Job = {
  run: ({ micro_batch: size }) =>
    size >= 18600
      ? { outcome: 'device_oom' }
      : { outcome: 'fit', peaks: { total_bytes: MEASURED[size] ?? 30 * MIB + 66_000 * size } },
};

it('goes at once to the size that ends the search, where it has come near it', () => {
  const s = search(job, constraints({ budgetBytes: 1200 * MIB, driven: false, switches: false }), true);
  expect(found(s).max_micro_batch).toBeGreaterThan(0.98 * 18600 - 1);
  expect(s.launches).toBe(14);
});
