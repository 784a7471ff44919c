import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Observation, Probe } from '../../src/contract/measurement.js';
import { MOST_LAUNCHES, MOST_PROBES, OWN_TRIES, Tuner } from '../../src/tuner/tuner.js';
import { AS_IT_STANDS, constraints, found, ledgerJob, MIB, search } from './machine.js';

const BUDGET = 120 * MIB;

/** What may be told of a probe: anything. Figures need not agree with each other, nor with what was told before. */
const told = fc.record({
  outcome: fc.constantFrom('fit' as const, 'fit' as const, 'fit' as const, 'device_oom' as const),
  steps: fc.constantFrom(0, 1, 2, 3, 5, 9, 10, 12, 30),
  total: fc.option(fc.integer({ min: 0, max: 2 * BUDGET }), { nil: null }),
  reserved: fc.option(fc.integer({ min: 0, max: 2 * BUDGET }), { nil: null }),
  growth: fc.constantFrom(null, 0, 100, 10_000, MIB, 40 * MIB),
  leak: fc.constantFrom(null, 0, 100, 10_000, MIB, 40 * MIB),
  retries: fc.constantFrom(0, 0, 3),
  seconds: fc.option(fc.double({ min: 1e-4, max: 10, noNaN: true }), { nil: null }),
  ambiguous: fc.constantFrom(false, false, true),
  phase: fc.constantFrom('load' as const, 'train' as const, 'eval' as const, 'unknown' as const),
  alive: fc.boolean(),
});

const bounds = fc.record({
  goal: fc.constantFrom('search' as const, 'keep' as const),
  objective: fc.constantFrom('max-batch' as const, 'throughput' as const),
  ownBatch: fc.option(fc.integer({ min: 1, max: 2048 }), { nil: null }),
  effectiveBatch: fc.option(fc.integer({ min: 1, max: 4096 }), { nil: null }),
  maxBatch: fc.option(fc.integer({ min: 1, max: 4096 }), { nil: null }),
  knownBad: fc.option(fc.integer({ min: 1, max: 4096 }), { nil: null }),
  accumulation: fc.constantFrom('auto' as const, 'auto' as const, 'off' as const),
  steps: fc.integer({ min: 2, max: 12 }),
  rungs: fc.constantFrom(
    [AS_IT_STANDS],
    [AS_IT_STANDS, { amp: 'bf16' as const, checkpointing: false }, { amp: 'bf16' as const, checkpointing: true }],
  ),
});

function observed(
  probe: Probe,
  one: typeof told extends fc.Arbitrary<infer T> ? T : never,
  launch: number,
  fresh: boolean,
) {
  const fit = one.outcome === 'fit';
  const observation: Observation = {
    rung: probe.rung,
    micro_batch: probe.micro_batch,
    accumulation: probe.accumulation,
    launch,
    fresh,
    steps: fit ? one.steps : 0,
    outcome: one.outcome,
    ambiguous: !fit && one.ambiguous,
    phase: fit ? null : one.phase,
    peaks: {
      total_bytes: one.total,
      forward_backward_bytes: one.total,
      optimizer_bytes: null,
      reserved_bytes: one.reserved,
      resident_bytes: null,
    },
    alloc_retries: one.retries,
    restless: one.alive,
    rise_bytes_per_step: one.growth,
    growth_bytes_per_step: one.leak,
    step_s: fit ? one.seconds : null,
    refused_bytes: null,
    evidence: fit ? null : 'out of memory',
    alive: fit && one.alive,
  };
  return observation;
}

describe('a search', () => {
  it('ends within its counts of probes and launches, whatever it is told', () => {
    fc.assert(
      fc.property(bounds, fc.infiniteStream(told), (patch, stream) => {
        const c = constraints({ budgetBytes: BUDGET, ...patch });
        const tuner = new Tuner(c);
        let launch = 0;
        let alive = false;
        let own = 0;
        for (let asked = 0; ; asked += 1) {
          const action = tuner.next();
          if (action.type !== 'probe') break;
          const { probe } = action;
          if (probe.purpose === 'own') own += 1;
          const fresh = probe.fresh || !alive;
          if (fresh) launch += 1;
          const observation = observed(probe, stream.next().value, launch, fresh);
          alive = observation.alive;
          tuner.tell(observation);
          expect(asked).toBeLessThan(MOST_PROBES);
        }
        expect(launch).toBeLessThanOrEqual(MOST_LAUNCHES);
        expect(own).toBeLessThanOrEqual(OWN_TRIES);
      }),
      { numRuns: 1500 },
    );
  });

  it('asks for few launches of a job that says the same of every size', () => {
    fc.assert(
      fc.property(bounds, told, fc.boolean(), (patch, same, perLaunch) => {
        const c = constraints({ budgetBytes: BUDGET, ...patch });
        const tuner = new Tuner(c);
        let launch = 0;
        let alive = false;
        for (;;) {
          const action = tuner.next();
          if (action.type !== 'probe') break;
          const fresh = action.probe.fresh || !alive;
          if (fresh) launch += 1;
          const observation = observed(action.probe, { ...same, alive: !perLaunch }, launch, fresh);
          alive = observation.alive;
          tuner.tell(observation);
          expect(launch).toBeLessThanOrEqual(MOST_LAUNCHES);
        }
        // A job that fits, or grows, at its own size is not launched again and again to see it once more.
        if (c.goal === 'keep' && same.outcome === 'fit' && !perLaunch) expect(launch).toBeLessThanOrEqual(20);
      }),
      { numRuns: 800 },
    );
  });
});

describe('a search of sizes that never end', () => {
  const notesOf = (perSample: number) => {
    const job = ledgerJob({ resident: 10 * MIB, perSample, optimizer: 0, budget: BUDGET });
    return found(search(job, constraints({ budgetBytes: BUDGET }))).notes.join(' ');
  };

  it('says that nothing shows that they reach the script where they take no memory', () => {
    expect(notesOf(0)).toContain('nothing shows that the size reaches the script');
  });

  it('says where it ended where they take some', () => {
    expect(notesOf(8)).toContain('Sizes above 1048576 were not tried.');
  });
});
