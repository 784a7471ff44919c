import { describe, expect, it } from 'vitest';
import { constraints, found, type Job, MIB, search } from './machine.js';

const BUDGET = 4096 * MIB;
const CONTEXT = 740 * MIB;
const RESIDENT = 60 * MIB;
const PER_SAMPLE = 2.05 * MIB;
/** Largest size for which the network itself, with the least of workspaces, leaves room. */
const LARGEST = Math.floor((BUDGET - CONTEXT - RESIDENT - 64 * MIB) / PER_SAMPLE);

/**
 * What DCGAN showed on an H200 under 4 GiB: its library tries all algorithms for each new shape (`cudnn.benchmark`), with workspaces
 * that differ from size to size by gigabytes and are never more than what is left, so that the peak is no line.
 */
const dcgan: Job = {
  run: ({ micro_batch: size }, warm) => {
    if (size > (warm ? 0.99 : 1) * LARGEST) return { outcome: 'device_oom' };
    const network = RESIDENT + PER_SAMPLE * size;
    const wanted = size < 100 ? 2400 * MIB : size % 3 === 2 ? 1500 * MIB : size % 3 === 1 ? 700 * MIB : 64 * MIB;
    const active = Math.min(network + wanted, BUDGET - CONTEXT - 24 * MIB);
    return {
      outcome: 'fit',
      step_s: 0.00015 * size,
      peaks: {
        total_bytes: active + CONTEXT + 20 * MIB,
        forward_backward_bytes: active,
        optimizer_bytes: RESIDENT,
        reserved_bytes: active + 20 * MIB,
        resident_bytes: RESIDENT,
      },
    };
  },
};

describe('workspaces that shrink to what is left', () => {
  it.each(['possible', 'on'] as const)(
    'do not end a search before a size has failed (segments that can grow: %s)',
    (expandable) => {
      const s = search(dcgan, constraints({ budgetBytes: BUDGET, expandable }));
      const { max_micro_batch: max } = found(s);
      expect(max).toBeLessThanOrEqual(LARGEST);
      expect(max).toBeGreaterThanOrEqual(0.97 * LARGEST);
      expect(s.oomLaunches).toBeLessThanOrEqual(1);
      expect(s.launches).toBe(2);
    },
  );
});
