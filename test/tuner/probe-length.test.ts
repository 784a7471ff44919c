import { expect, it } from 'vitest';
import type { Observation } from '../../src/contract/measurement.js';
import { probeLength } from '../../src/tuner/probe-length.js';
import { constraints, search } from './machine.js';

/** What was seen of sizes that take `rate` samples a second. */
function seen(sizes: number[], rate: number): Observation[] {
  const job = {
    run: ({ micro_batch: size }: { micro_batch: number }) => ({ outcome: 'fit' as const, step_s: size / rate }),
  };
  const [any] = search(job, constraints({ maxBatch: 1 })).observations;
  return sizes.map((size) => ({ ...(any as Observation), micro_batch: size, step_s: size / rate }));
}

it.each([
  ['three steps, as one at 332 takes 0.15 s', [1, 115, 332], 2275, 3],
  ['three steps, as one at 115 promises as much', [1, 115], 2275, 3],
  ['five steps, as they are short', [1, 115, 332], 20_000, 5],
])('a size of 326 that is recommended is measured for %s', (_, sizes, rate, steps) => {
  const probe = { purpose: 'speed' as const, size: 326, proves: false, hasFailed: false };
  expect(probeLength(probe, constraints(), seen(sizes, rate), true).steps).toBe(steps);
});
