import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Probe } from '../../src/contract/measurement.js';
import { type Constraints, constraints, found, type Job, MIB, search } from './machine.js';

const BUDGET = 2048 * MIB;
/** Steps that a worker lets a probe take at most until the allocator has come to rest. */
const MOST_STEPS = 30;

interface Growing extends Job {
  /** Highest use within so many steps. */
  after(size: number, steps: number): number;
}

/** Steps for which a worker measures a loop that leaves so many bytes behind with each. */
function doubted(probe: Probe, left: number, peak: (step: number) => number): number {
  if (left <= probe.growth_bytes) return 0;
  const first = Math.max(probe.steps, probe.growth_steps);
  return left > probe.leak_bytes && peak(Math.max(first, probe.leak_steps)) <= probe.budget_bytes
    ? Math.max(first, probe.leak_steps)
    : first;
}

/**
 * A loop whose memory rises: by `leak` bytes a step for ever, and by `creep` (a part of its peak) as an allocator's
 * fragments add up, more and more slowly.
 */
function growing(shape: {
  resident: number;
  perSample: number;
  leak: (size: number) => number;
  creep: number;
  pace: number;
  caching: boolean;
}): Growing {
  const peak = (size: number, step: number): number =>
    (shape.resident + size * shape.perSample) * (1 + shape.creep * (1 - Math.exp(-step / shape.pace))) +
    shape.leak(size) * step;
  return {
    after: peak,
    run: (probe) => {
      const size = probe.micro_batch;
      let steps = 0;
      let quiet = 0;
      const wanted = Math.max(
        probe.steps,
        doubted(probe, shape.leak(size), (step) => peak(size, step)),
      );
      while (steps < wanted || (shape.caching && quiet < probe.rest_steps && steps < MOST_STEPS)) {
        steps += 1;
        if (peak(size, steps) > BUDGET) return { outcome: 'device_oom' };
        quiet = peak(size, steps) - peak(size, steps - 1) < 2 * MIB ? quiet + 1 : 0;
      }
      const held = peak(size, steps);
      const creep =
        shape.caching && quiet < probe.rest_steps ? (held - peak(size, steps >> 1)) / (steps - (steps >> 1)) : 0;
      return {
        outcome: 'fit',
        steps,
        rise_bytes_per_step: Math.max(shape.leak(size), creep),
        growth_bytes_per_step: shape.leak(size),
        peaks: {
          total_bytes: held,
          forward_backward_bytes: shape.resident + size * shape.perSample + shape.leak(size) * steps,
          optimizer_bytes: shape.resident,
          reserved_bytes: shape.caching ? held : null,
          resident_bytes: shape.resident,
        },
      };
    },
  };
}

const jobs = fc.record({
  resident: fc.integer({ min: 20, max: 800 }).map((n) => n * MIB),
  perSample: fc.integer({ min: 100, max: 30_000 }).map((n) => n * 1024),
  caching: fc.boolean(),
});
const wanted = (patch: Partial<Constraints> = {}): Constraints => constraints({ budgetBytes: BUDGET, ...patch });

describe('a loop that leaves memory behind', () => {
  it('gets no size where it fills any budget soon', () => {
    fc.assert(
      fc.property(
        jobs,
        fc.integer({ min: 300, max: 20_000 }).map((n) => n * 1024),
        (shape, bytes) => {
          const job = growing({ ...shape, leak: () => bytes, creep: 0, pace: 1 });
          fc.pre(job.after(1, 12) <= BUDGET);
          const { last, launches } = search(job, wanted());
          expect(last).toMatchObject({ type: 'exhausted', cause: 'growth' });
          expect(last.type === 'exhausted' && last.why).toContain('no batch size helps');
          expect(launches).toBeLessThanOrEqual(2);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('is left at the size that the script asks for where that lasts for a while, and is told how long', () => {
    const job = growing({ resident: 100 * MIB, perSample: MIB, leak: () => MIB, creep: 0, pace: 1, caching: false });
    const { config, notes } = found(search(job, wanted({ goal: 'keep', ownBatch: 64 })));
    expect(config.micro_batch).toBe(64);
    expect(notes.join(' ')).toMatch(
      /Memory grows by 1 MiB with every step: .* after about 18\d\d steps, and no batch size helps/,
    );
  });

  it('gets sizes that last 200 steps where it grows slowly, and not much smaller ones than that takes', () => {
    fc.assert(
      fc.property(
        jobs,
        // Less than the part of the budget that fills it in 10,000 steps, at any size.
        fc.integer({ min: 8, max: 200 }).map((n) => n * 1024),
        fc.boolean(),
        (shape, bytes, each) => {
          // What is kept is a loss with its graph, or something of every sample.
          const leak = (size: number): number => (each ? Math.min(200 * 1024, (bytes * size) / 400) : bytes);
          const job = growing({ ...shape, leak, creep: 0, pace: 1 });
          fc.pre(job.after(1, 200) <= BUDGET);
          const { max_micro_batch: maxMicroBatch, config, notes } = found(search(job, wanted()));
          expect(job.after(maxMicroBatch, 200)).toBeLessThanOrEqual(1.0002 * BUDGET);
          expect(job.after(config.micro_batch, 200)).toBeLessThanOrEqual(BUDGET);
          const larger = maxMicroBatch < 50 ? maxMicroBatch + 2 : Math.ceil(maxMicroBatch / 0.98) + 1;
          expect(job.after(larger, 200)).toBeGreaterThan(0.995 * BUDGET);
          if (200 * leak(config.micro_batch) > 0.001 * BUDGET) {
            expect(notes.join(' ')).toContain('Memory grows from step to step');
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it('is not said of one that keeps a number of each step', () => {
    // An allocator that is at rest after some steps, and 512 bytes a step that are kept.
    const shape = { resident: 100 * MIB, perSample: MIB, creep: 0.02, pace: 1.5, caching: true };
    const { notes } = found(search(growing({ ...shape, leak: () => 512 }), wanted()));
    expect(notes.join(' ')).not.toContain('Memory grows');
  });

  it('is looked for at some sizes only where single steps go up and down', () => {
    // 300 KiB more at the end of a short probe, at every size; over ten steps nothing.
    const steady = growing({ resident: 100 * MIB, perSample: MIB, leak: () => 0, creep: 0, pace: 1, caching: true });
    const probes: { size: number; steps: number }[] = [];
    const unsteady: Job = {
      run: (probe) => {
        const seen = steady.run(probe);
        const steps = Math.max(seen.steps ?? 0, 300 * 1024 > probe.growth_bytes ? probe.growth_steps : 0);
        probes.push({ size: probe.micro_batch, steps });
        const noise = steps < 10 ? 300 * 1024 : 0;
        return { ...seen, steps, rise_bytes_per_step: noise, growth_bytes_per_step: noise };
      },
    };
    const { config, notes } = found(search(unsteady, wanted()));
    expect(config.micro_batch).toBeGreaterThan(0.9 * (BUDGET / MIB - 100));
    expect(notes.join(' ')).not.toContain('Memory grows');
    expect(probes.filter(({ steps }) => steps < 10).length).toBeGreaterThanOrEqual(probes.length / 2);
  });

  it('is told so where not even the smallest size lasts', () => {
    const job = growing({
      resident: 100 * MIB,
      perSample: MIB,
      leak: () => 20 * MIB,
      creep: 0,
      pace: 1,
      caching: false,
    });
    const { last } = search(job, wanted());
    expect(last.type === 'exhausted' && last.why).toContain('Memory grows by 20 MiB');
  });

  it('is no leak where it has come to an end by the fortieth step', () => {
    const still = growing({ resident: 100 * MIB, perSample: MIB, leak: () => 0, creep: 0, pace: 1, caching: false });
    const filling: Job = {
      run: (probe, warm) => {
        const steps = doubted(probe, 400 * 1024, () => 0);
        const rise = steps < 40 ? 400 * 1024 : 0;
        return { ...still.run(probe, warm), steps, rise_bytes_per_step: rise, growth_bytes_per_step: rise };
      },
    };
    const { max_micro_batch: maxMicroBatch, notes } = found(search(filling, wanted()));
    expect(maxMicroBatch).toBeGreaterThanOrEqual(1947);
    expect(notes.join(' ')).not.toContain('Memory grows');
  });

  it('is no leak where it comes with new shapes of inputs alone, which is told', () => {
    const shape = { resident: 100 * MIB, perSample: MIB, creep: 0, pace: 1, caching: false };
    const job = growing({ ...shape, leak: () => 400 * 1024 });
    const compiling: Job = { run: (...asked) => ({ ...job.run(...asked), grows_with_shapes: true }) };
    const { notes } = found(search(compiling, wanted()));
    expect(notes.join(' ')).toMatch(/Memory grows from step to step, with new shapes of its inputs: .* 200 steps/);
  });

  it('is no leak where the loop has ended by itself before', () => {
    const still = growing({ resident: 100 * MIB, perSample: MIB, leak: () => 0, creep: 0, pace: 1, caching: false });
    const rise = 400 * 1024;
    const ending: Job = {
      run: (probe, warm) => {
        const ended = { steps: 12, short: true, rise_bytes_per_step: rise, growth_bytes_per_step: rise };
        return { ...still.run(probe, warm), ...ended };
      },
    };
    const { max_micro_batch: maxMicroBatch } = found(search(ending, wanted()));
    expect(maxMicroBatch).toBeGreaterThanOrEqual(1947);
  });

  it('is measured for longer, so that one rise early on is no leak', () => {
    const still = growing({ resident: 100 * MIB, perSample: MIB, leak: () => 0, creep: 0, pace: 1, caching: false });
    const job: Job = {
      run: (probe, warm) => ({
        ...still.run(probe, warm),
        // Something is made in the second step that stays: three steps show a rise, more do not.
        rise_bytes_per_step: probe.steps < 10 ? 5 * MIB : 0,
        growth_bytes_per_step: probe.steps < 10 ? 5 * MIB : 0,
      }),
    };
    const { max_micro_batch: maxMicroBatch } = found(search(job, wanted()));
    expect(maxMicroBatch).toBeGreaterThanOrEqual(1947);
  });
});

describe('an allocator whose fragments add up', () => {
  it('is given sizes that last 200 steps, however slowly it fills', () => {
    fc.assert(
      fc.property(
        jobs,
        fc.double({ min: 0, max: 0.3, noNaN: true }),
        fc.double({ min: 0.5, max: 80, noNaN: true }),
        (shape, creep, pace) => {
          const job = growing({ ...shape, caching: true, leak: () => 0, creep, pace });
          fc.pre(job.after(1, 200) <= 0.5 * BUDGET);
          const { max_micro_batch: maxMicroBatch, config } = found(search(job, wanted()));
          // Less than a block of the allocator's is no rise that it could tell.
          expect(job.after(maxMicroBatch, 200)).toBeLessThanOrEqual(BUDGET + 200 * 2 * MIB * 0.05);
          expect(job.after(config.micro_batch, 200)).toBeLessThanOrEqual(BUDGET);
        },
      ),
      { numRuns: 300 },
    );
  });
});
