import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Observation } from '../../src/contract/measurement.js';
import type { Rung } from '../../src/contract/rung.js';
import { Contest } from '../../src/tuner/contest.js';
import type { Probe } from '../../src/tuner/types.js';
import { AS_IT_STANDS, constraints, found, type Job, ledgerJob, MIB, search } from './machine.js';

const BUDGET = 1001 * MIB;
const RUNGS: Rung[] = [
  AS_IT_STANDS,
  { amp: 'off', checkpointing: true },
  { amp: 'bf16', checkpointing: false },
  { amp: 'bf16', checkpointing: true },
];

/** A job of equal memory on all rungs, with a rate for each, off by `noise` (a standard deviation) from probe to probe. */
function jobOf(rates: readonly number[], noise: number, seed: number): Job {
  const random = normal(seed);
  const memory = ledgerJob({ resident: 100 * MIB, perSample: 2 * MIB, optimizer: 50 * MIB, budget: BUDGET });
  return {
    run: (probe, warm) => {
      const at = RUNGS.findIndex(
        (rung) => rung.amp === probe.rung.amp && rung.checkpointing === probe.rung.checkpointing,
      );
      const rate = ((rates[at] as number) * probe.micro_batch) / (probe.micro_batch + 4) / Math.exp(noise * random());
      return { ...memory.run(probe, warm), step_s: (probe.micro_batch * probe.accumulation) / rate };
    },
  };
}

function chosen(rates: readonly number[], noise: number, seed: number, patch: Parameters<typeof constraints>[0] = {}) {
  const c = constraints({
    budgetBytes: BUDGET,
    rungs: RUNGS.slice(0, rates.length),
    objective: 'throughput',
    ...patch,
  });
  const s = search(jobOf(rates, noise, seed), c, patch.switches === false);
  const { config } = found(s);
  const at = RUNGS.findIndex((rung) => rung.amp === config.amp && rung.checkpointing === config.checkpointing);
  return { s, at };
}

const seeds = Array.from({ length: 300 }, (_, n) => n + 1);
const share = (rates: readonly number[], noise: number, wanted: number): number =>
  seeds.filter((seed) => chosen(rates, noise, seed).at === wanted).length / seeds.length;

describe('the comparison of rungs', () => {
  it.each([0.002, 0.02, 0.1])(
    'stays with the one that changes least where all are equally fast (noise %f)',
    (noise) => {
      expect(share([100, 100, 100, 100], noise, 0)).toBeGreaterThan(0.97);
      expect(share([100, 100], noise, 0)).toBeGreaterThan(0.97);
    },
  );

  it('takes the fastest where that is clear, however it is off', () => {
    expect(share([100, 70, 160, 120], 0.02, 2)).toBe(1);
    expect(share([100, 70, 110, 90], 0.01, 2)).toBeGreaterThan(0.97);
    expect(share([100, 60], 0.05, 0)).toBe(1);
  });

  it('measures the rungs in turns, in one process, and says by how much their speeds spread', () => {
    const { s } = chosen([100, 100, 104], 0.03, 5);
    const turns = s.observations.filter((_, n) => s.probes[n]?.why.startsWith('the rungs are compared'));
    expect(new Set(turns.map((o) => o.launch)).size).toBe(1);
    expect(turns.map((o) => RUNGS.indexOf(o.rung))).toEqual([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    const { comparison, notes } = found(s);
    expect(comparison).toMatchObject({ together: true, speeds: [{ rounds: 5 }, { rounds: 5 }, { rounds: 5 }] });
    for (const { samples_per_s: samplesPerSecond, spread } of comparison?.speeds ?? []) {
      expect(samplesPerSecond).toBeGreaterThan(85);
      expect(spread).toBeGreaterThan(0);
      expect(spread).toBeLessThan(15);
    }
    expect(notes.join(' ')).not.toContain('across launches');
  });

  it('ends after three turns where the lead is clear', () => {
    const { s } = chosen([100, 90, 160], 0.005, 5);
    expect(s.probes.filter(({ why }) => why.startsWith('the rungs are compared'))).toHaveLength(9);
  });

  it('is not led astray by a machine that slows down while it is measured', () => {
    // Whatever is looked at first is the fastest, by far.
    let probes = 0;
    const job: Job = {
      run: (probe, warm) => {
        probes += 1;
        return {
          ...jobOf([100, 100], 0.002, probes).run(probe, warm),
          step_s: (1 + 0.03 * probes) * probe.micro_batch,
        };
      },
    };
    const c = constraints({ budgetBytes: BUDGET, rungs: RUNGS.slice(0, 2), objective: 'throughput' });
    expect(found(search(job, c)).config.checkpointing).toBe(false);
  });

  it('does not leave out a rung that something else slowed down once, while it was surveyed', () => {
    const surveyed = [30, 90].map((rate, index) => ({ index, rung: RUNGS[index] as Rung, size: 8, rate }));
    const contest = new Contest(surveyed, true);
    const job = jobOf([150, 135], 0.001, 3);
    for (let wanted = contest.next(); wanted !== null; wanted = contest.next()) {
      const probe = { rung: wanted.rung, micro_batch: wanted.size, accumulation: 1 } as Probe;
      contest.tell({ ...probe, ...job.run(probe, true) } as Observation);
    }
    expect(contest.order()).toEqual([0, 1]);
    expect(contest.speeds(1).map(({ rounds }) => rounds)).toEqual([3, 3]);
  });

  it('shows a hopeless rung a second time, and no more', () => {
    const { s, at } = chosen([100, 95, 20], 0.002, 5);
    const turns = s.observations.filter((_, n) => s.probes[n]?.why.startsWith('the rungs are compared'));
    expect(turns.map((o) => RUNGS.indexOf(o.rung))).toEqual([0, 1, 2, 0, 1, 0, 1]);
    expect(at).toBe(0);
  });

  it('says that launches were compared where one process cannot show all rungs, and asks for more of a lead', () => {
    const apart = { driven: false, switches: false };
    const near = chosen([100, 100, 108], 0, 1, apart);
    expect(near.at).toBe(0);
    expect(found(near.s).notes.join(' ')).toContain('compared across launches, each measured once');
    expect(found(near.s).comparison).toMatchObject({ together: false, speeds: [{ spread: null, rounds: 1 }, {}, {}] });
    expect(chosen([100, 100, 125], 0, 1, apart).at).toBe(2);
  });

  it('ends, and answers, whatever the rates and the noise', () => {
    const rates = fc.array(fc.double({ min: 1, max: 1000, noNaN: true }), { minLength: 2, maxLength: 4 });
    fc.assert(
      fc.property(
        rates,
        fc.double({ min: 0, max: 0.5, noNaN: true }),
        fc.nat(1e6),
        fc.integer({ min: 2, max: 6 }),
        (...drawn) => {
          const [speeds, noise, seed, maxLaunches] = drawn;
          const { s, at } = chosen(speeds, noise, seed, { maxLaunches });
          expect(at).toBeGreaterThanOrEqual(0);
          expect(s.launches).toBeLessThanOrEqual(2);
          expect(s.probes.length).toBeLessThanOrEqual(80);
        },
      ),
      { numRuns: 300 },
    );
  });
});

/** Normally distributed numbers, the same for the same seed. */
function normal(seed: number): () => number {
  let state = seed;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}
