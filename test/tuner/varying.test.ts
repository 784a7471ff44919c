import { describe, expect, it } from 'vitest';
import { constraints, found, MIB, search } from './machine.js';
import { drawsOf, type Varying, varieties, varying } from './varying.js';

const BUDGET = 2048 * MIB;
const JOBS = 200;
const LASTING = 200;
const PLACES = [
  { place: 'the CPU device', caching: false, perLaunch: false },
  { place: 'the CPU device, each size a launch', caching: false, perLaunch: true },
  { place: 'a GPU', caching: true, perLaunch: false },
];

describe.each(Object.entries(varieties))('a loop whose steps differ: %s', (_, variety) => {
  it.each(PLACES)('gets sizes that last 200 steps on $place, and not much smaller ones', ({ caching, perLaunch }) => {
    const ended = { largest: 0, recommended: 0 };
    for (let seed = 1; seed <= JOBS; seed += 1) {
      const draw = drawsOf(seed);
      const shape: Varying = { resident: (100 + 400 * draw()) * MIB, perSample: (0.5 + 8 * draw()) * MIB, caching };
      const job = varying(shape, variety, BUDGET, draw);
      const wanted = constraints({
        budgetBytes: BUDGET,
        counted: !caching,
        ...(caching ? { expandable: 'possible' } : {}),
      });
      const { max_micro_batch: largest, config } = found(search(job, wanted, perLaunch));
      if (!job.lasts(largest, LASTING)) ended.largest += 1;
      if (!job.lasts(config.micro_batch, LASTING)) ended.recommended += 1;
      expect(largest, `seed ${seed}`).toBeGreaterThan(0.92 * job.enough(variety.highest) - 1);
    }
    // What no step of those that were measured took may come all the same: the headroom is for that.
    expect(ended.largest).toBeLessThan(JOBS / 4);
    expect(ended.recommended).toBeLessThanOrEqual(JOBS / 100);
  });
});

describe('steps that take the same', () => {
  it.each(PLACES)('are no more than they were on $place', ({ caching, perLaunch }) => {
    const still = { step: () => 0, highest: 0 };
    const job = varying({ resident: 100 * MIB, perSample: MIB, caching }, still, BUDGET, drawsOf(1));
    const wanted = constraints({
      budgetBytes: BUDGET,
      counted: !caching,
      ...(caching ? { expandable: 'possible' } : {}),
    });
    const { observations } = search(job, wanted, perLaunch);
    expect(Math.max(...observations.map(({ steps }) => steps))).toBeLessThanOrEqual(10);
    expect(observations.filter(({ steps }) => steps >= 10).length).toBeLessThanOrEqual(1);
  });
});
