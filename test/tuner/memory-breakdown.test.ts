import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { MemoryBreakdown, Observation, Peaks } from '../../src/contract/measurement.js';
import type { Config } from '../../src/contract/rung.js';
import { breakdownOf, PARTS } from '../../src/tuner/index.js';
import { AS_IT_STANDS, constraints, found, GIB, MIB, search } from './machine.js';
import { recordedJobs } from './recorded.js';

const BUDGET = 24 * GIB;

function took(microBatch: number, peaks: Partial<Peaks>, patch: Partial<Observation> = {}): Observation {
  return {
    rung: AS_IT_STANDS,
    micro_batch: microBatch,
    accumulation: 1,
    launch: 1,
    fresh: false,
    steps: 3,
    outcome: 'fit',
    ambiguous: false,
    phase: null,
    peaks: {
      total_bytes: null,
      forward_backward_bytes: null,
      optimizer_bytes: null,
      reserved_bytes: null,
      resident_bytes: null,
      ...peaks,
    },
    alloc_retries: 0,
    step_s: null,
    refused_bytes: null,
    evidence: null,
    alive: true,
    ...patch,
  };
}

function config(micro_batch: number, patch: Partial<Config> = {}): Config {
  const base = { micro_batch, accumulation: 1, world_size: 1, effective_batch: micro_batch };
  return { ...base, amp: 'off', checkpointing: false, ...patch };
}

const sum = (breakdown: MemoryBreakdown): number => PARTS.reduce((all, part) => all + (breakdown[part] ?? 0), 0);

describe('the breakdown of a peak', () => {
  const holdings = { parameter_bytes: 400 * MIB, gradient_bytes: 400 * MIB, optimizer_state_bytes: 800 * MIB };
  /** 1.6 GiB that stay, 10 MiB a sample, 25 MiB of workspace; a fifth more reserved than used, and a context. */
  const card = (size: number): Partial<Peaks> => {
    const active = (1600 + 25 + 10 * size) * MIB;
    const reserved = 1.2 * active;
    const total = reserved + 500 * MIB;
    return {
      ...holdings,
      forward_backward_bytes: active,
      optimizer_bytes: 2000 * MIB,
      reserved_bytes: reserved,
      total_bytes: total,
    };
  };

  it('finds each part of a job on a card', () => {
    const seen = [1, 16, 100, 200].map((size) => took(size, card(size)));
    const breakdown = breakdownOf(seen, config(200), BUDGET);
    expect(breakdown).toEqual({
      micro_batch: 200,
      accumulation: 1,
      peak_bytes: card(200).total_bytes,
      peak_in: 'forward_backward',
      parameters: 400 * MIB,
      gradients: 400 * MIB,
      optimizer_state: 800 * MIB,
      activations: 2000 * MIB,
      activations_per_sample: 10 * MIB,
      allocator_slack: Math.round(0.2 * 3625 * MIB),
      context: 500 * MIB,
      rest: 25 * MIB,
    });
  });

  it('has no activations where the peak is in the optimizer step', () => {
    const seen = [1, 2, 8].map((size) => took(size, card(size)));
    const breakdown = breakdownOf(seen, config(8), BUDGET) as MemoryBreakdown;
    expect(breakdown).toMatchObject({ peak_in: 'optimizer', activations: 0, activations_per_sample: 10 * MIB });
    expect(sum(breakdown)).toBe(breakdown.peak_bytes);
  });

  it('knows neither context nor slack in host memory', () => {
    const host = (size: number): Partial<Peaks> => {
      const bytes = (1600 + 10 * size) * MIB;
      return { ...holdings, forward_backward_bytes: bytes, optimizer_bytes: 0, total_bytes: bytes + 7 * MIB };
    };
    const breakdown = breakdownOf(
      [1, 50, 100].map((size) => took(size, host(size))),
      config(100),
      BUDGET,
    );
    expect(breakdown).toMatchObject({ allocator_slack: null, context: null, activations: 1000 * MIB, rest: 7 * MIB });
  });

  it('leaves to the rest what nobody can tell apart', () => {
    const bare = (size: number) => took(size, { total_bytes: (100 + size) * MIB });
    expect(breakdownOf([bare(10)], config(10), BUDGET)).toMatchObject({
      peak_in: null,
      parameters: null,
      activations: null,
      activations_per_sample: null,
      rest: 110 * MIB,
    });
    const two = breakdownOf([bare(10), bare(60), bare(100)], config(100), BUDGET) as MemoryBreakdown;
    expect(two).toMatchObject({ activations_per_sample: MIB, activations: 100 * MIB, rest: 100 * MIB });
  });

  it('lets all gradients stand where a peak in mid-backward has not all of both', () => {
    const early = (size: number): Partial<Peaks> => {
      const bytes = (400 + 10 * size) * MIB;
      return {
        parameter_bytes: 400 * MIB,
        gradient_bytes: 400 * MIB,
        forward_backward_bytes: bytes,
        total_bytes: bytes,
      };
    };
    const breakdown = breakdownOf(
      [1, 50, 100].map((size) => took(size, early(size))),
      config(100),
      BUDGET,
    );
    expect(breakdown).toMatchObject({
      gradients: 400 * MIB,
      activations: 600 * MIB,
      activations_per_sample: 10 * MIB,
      rest: 0,
    });
  });

  it('looks at the rung and the size that were asked for, in a fresh process where there was one', () => {
    const bf16 = { amp: 'bf16' as const, checkpointing: false };
    const seen = [
      took(1, { total_bytes: 100 * MIB }),
      took(8, { total_bytes: 900 * MIB }),
      took(8, { total_bytes: 800 * MIB }, { fresh: true, launch: 2 }),
      took(8, { total_bytes: 500 * MIB }, { rung: bf16 }),
      took(9, {}, { outcome: 'device_oom' }),
    ];
    expect(breakdownOf(seen, config(8), BUDGET)?.peak_bytes).toBe(800 * MIB);
    expect(breakdownOf(seen, config(8, { amp: 'bf16' }), BUDGET)?.peak_bytes).toBe(500 * MIB);
    expect(breakdownOf(seen, config(9), BUDGET)).toBeNull();
    expect(breakdownOf([], config(8), BUDGET)).toBeNull();
  });

  it.each(recordedJobs())('adds up on the recorded curve of $name', (job) => {
    const s = search(job, constraints({ budgetBytes: job.budgetBytes }));
    const answer = found(s);
    const quarter = { parameter_bytes: 100 * MIB, gradient_bytes: 100 * MIB, optimizer_state_bytes: 200 * MIB };
    const seen = s.observations.map((o) => ({ ...o, peaks: { ...o.peaks, ...quarter } }));
    const recommended = breakdownOf(seen, answer.config, job.budgetBytes) as MemoryBreakdown;
    expect(recommended.peak_bytes).toBe(answer.peak_bytes);
    expect(sum(recommended)).toBe(recommended.peak_bytes);
    const breakdown = breakdownOf(seen, config(answer.max_micro_batch), job.budgetBytes) as MemoryBreakdown;
    expect(sum(breakdown)).toBe(breakdown.peak_bytes);
    expect(breakdown.context).toBe(610 * MIB);
    expect(breakdown.peak_in).toBe('forward_backward');
    // On these curves nearly all that the tensors hold at the largest size is activations.
    const inTensors = breakdown.peak_bytes - (breakdown.context ?? 0) - (breakdown.allocator_slack ?? 0);
    expect((breakdown.activations ?? 0) / inTensors).toBeGreaterThan(0.85);
    const steady = (breakdown.activations_per_sample ?? 0) * answer.max_micro_batch;
    expect(Math.abs(steady - (breakdown.activations ?? 0)) / steady).toBeLessThan(0.1);
  });

  it('adds up to the peak, with no part below nothing, whatever is measured', () => {
    const bytes = fc.option(fc.integer({ min: 0, max: 64 * GIB }), { nil: null });
    const peaks = fc.record({
      total_bytes: bytes,
      forward_backward_bytes: bytes,
      optimizer_bytes: bytes,
      reserved_bytes: bytes,
      resident_bytes: bytes,
      parameter_bytes: bytes,
      gradient_bytes: bytes,
      optimizer_state_bytes: bytes,
    });
    const observation = fc
      .tuple(fc.integer({ min: 1, max: 64 }), peaks, fc.boolean(), fc.integer({ min: 1, max: 3 }), fc.boolean())
      .map(([size, p, fresh, accumulation, fits]) =>
        took(size, p, { fresh, accumulation, outcome: fits ? 'fit' : 'device_oom' }),
      );
    let taken = 0;
    fc.assert(
      fc.property(fc.array(observation, { minLength: 1, maxLength: 8 }), (seen) => {
        const size = (seen.find((o) => o.outcome === 'fit') ?? seen[0])?.micro_batch as number;
        const breakdown = breakdownOf(seen, config(size), BUDGET);
        if (breakdown === null) return;
        taken += 1;
        expect(sum(breakdown)).toBe(breakdown.peak_bytes);
        for (const part of PARTS) expect(breakdown[part] ?? 0).toBeGreaterThanOrEqual(0);
        expect(breakdown.activations_per_sample ?? 0).toBeGreaterThanOrEqual(0);
      }),
      { numRuns: 2000 },
    );
    expect(taken).toBeGreaterThan(1000);
  });
});
