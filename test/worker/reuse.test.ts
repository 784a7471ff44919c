import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Recommendation } from '../../src/contract/recommendation.js';
import { halved, largestDivisor, stepDown } from '../../src/tuner/index.js';
import { configFrom } from '../../src/worker/run/reuse.js';

const recommendation: Recommendation = {
  schema: 1,
  key: 'mlp:cpu:300m:1x',
  name: 'mlp',
  gpu_model: 'host',
  budget_bytes: 300 * 1024 ** 2,
  world_size: 1,
  micro_batch: 40,
  accumulation: 1,
  effective_batch: 40,
  amp: 'off',
  checkpointing: false,
  max_micro_batch: 48,
  known_bad_micro_batch: 49,
  peak_bytes: 1,
  samples_per_s: 1,
  verified_at: '2026-01-01T00:00:00.000Z',
  status: 'verified',
  command_digest: 'd',
  torch: null,
  driver: null,
  probes: [],
};
const job = {
  budgetBytes: 300 * 1024 ** 2,
  worldSize: 1,
  baseRung: { amp: 'off' as const, checkpointing: false },
  own: { microBatch: 8, accumulation: 1 },
};
const options = {
  effectiveBatch: null,
  minBatch: 1,
  maxBatch: null as number | null,
  amp: 'auto' as const,
  checkpointing: 'auto' as const,
  exact: false,
  accumulation: 'auto' as const,
};

describe('reuse of a recommendation', () => {
  it('runs a job that fits as it stands exactly as it stands', () => {
    expect(configFrom(recommendation, job, options)?.config).toMatchObject({ micro_batch: 8, accumulation: 1 });
  });

  it('keeps the command’s own effective batch by accumulating where its batch does not fit', () => {
    const own = { microBatch: 128, accumulation: 1 };
    expect(configFrom(recommendation, { ...job, own }, options)?.config).toMatchObject({
      micro_batch: 32,
      accumulation: 4,
      effective_batch: 128,
    });
  });

  it('says so when a command with no batch of its own runs at the recommended one', () => {
    const choice = configFrom(recommendation, { ...job, own: { microBatch: null, accumulation: null } }, options);
    expect(choice?.config).toMatchObject({ micro_batch: 40, accumulation: 1 });
    expect(choice?.notes.join(' ')).toMatch(/no batch of its own.*micro-batch 40 with accumulation 1/);
    const accumulated = { ...recommendation, accumulation: 4, effective_batch: 160 };
    const kept = { ...job, own: { microBatch: null, accumulation: null }, isCutByHook: true };
    expect(configFrom(recommendation, kept, options)?.notes.join(' ')).toMatch(
      /keeps its own.*of at most 40 samples\.$/,
    );
    const again = configFrom(accumulated, { ...job, own: { microBatch: null, accumulation: null } }, options);
    expect(again?.config).toMatchObject({ micro_batch: 40, accumulation: 1, effective_batch: 40 });
  });

  it('runs at no micro-batch that the options rule out', () => {
    const bare = { ...job, own: { microBatch: null, accumulation: null } };
    expect(configFrom(recommendation, job, { ...options, maxBatch: 3 })?.config).toMatchObject({
      micro_batch: 2,
      accumulation: 4,
    });
    expect(configFrom(recommendation, bare, { ...options, maxBatch: 3 })?.config).toMatchObject({ micro_batch: 3 });
    expect(configFrom(recommendation, job, { ...options, minBatch: 9 })).toBeNull();
    expect(configFrom(recommendation, bare, { ...options, minBatch: 41 })).toBeNull();
  });

  it.each([
    ['a smaller budget', { ...job, budgetBytes: 1 }, options],
    ['memory of strangers where its peak was', { ...job, roomBytes: 0 }, options],
    ['another world', { ...job, worldSize: 2 }, options],
    ['another amp', job, { ...options, amp: 'bf16' as const }],
    [
      'no accumulation where it would be needed',
      { ...job, own: { microBatch: 128, accumulation: 1 } },
      { ...options, accumulation: 'off' as const },
    ],
  ])('says nothing about %s', (_, otherJob, otherOptions) => {
    expect(configFrom(recommendation, otherJob, otherOptions)).toBeNull();
  });

  it('never changes numerics for --exact', () => {
    expect(configFrom({ ...recommendation, amp: 'bf16' }, job, { ...options, exact: true })).toBeNull();
  });

  it('does not trust a demoted record', () => {
    expect(configFrom({ ...recommendation, status: 'demoted' }, job, options)).toBeNull();
  });

  it('keeps the effective batch exact for any wish', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4096 }), fc.integer({ min: 1, max: 512 }), (effective, micro) => {
        const choice = configFrom({ ...recommendation, micro_batch: micro }, job, {
          ...options,
          effectiveBatch: effective,
        });
        const config = choice?.config;
        expect(config).toBeDefined();
        if (!config) return;
        expect(config.micro_batch * config.accumulation * config.world_size).toBe(effective);
        expect(config.micro_batch).toBeLessThanOrEqual(Math.max(micro, recommendation.max_micro_batch));
      }),
    );
  });
});

describe('stepping down after a late out-of-memory error', () => {
  it('at least halves the micro-batch and keeps the effective batch, down to 1', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 512 }), fc.integer({ min: 1, max: 16 }), (micro, accumulation) => {
        const config = {
          micro_batch: micro,
          accumulation,
          world_size: 1,
          effective_batch: micro * accumulation,
          amp: 'off' as const,
          checkpointing: false,
        };
        const next = stepDown(config, { accumulation: 'auto', minBatch: 1 });
        expect(next?.micro_batch).toBeLessThanOrEqual(micro / 2);
        expect((next?.micro_batch ?? 0) * (next?.accumulation ?? 0)).toBe(micro * accumulation);
      }),
    );
    expect(largestDivisor(97, 50)).toBe(1);
  });

  it('halves the micro-batch alone where no effective batch is to be kept', () => {
    const config = {
      micro_batch: 151,
      accumulation: 2,
      world_size: 1,
      effective_batch: 302,
      amp: 'off' as const,
      checkpointing: false,
    };
    expect(halved(config, { minBatch: 1 })).toMatchObject({ micro_batch: 75, accumulation: 2, effective_batch: 150 });
    expect(halved(config, { minBatch: 76 })).toBeNull();
    expect(halved({ ...config, micro_batch: 1 }, { minBatch: 1 })).toBeNull();
  });

  it('neither accumulates nor goes below the smallest micro-batch where the options forbid it', () => {
    const config = {
      micro_batch: 64,
      accumulation: 1,
      world_size: 1,
      effective_batch: 64,
      amp: 'off' as const,
      checkpointing: false,
    };
    expect(stepDown(config, { accumulation: 'off', minBatch: 1 })).toBeNull();
    expect(stepDown(config, { accumulation: 'auto', minBatch: 33 })).toBeNull();
    expect(stepDown(config, { accumulation: 'auto', minBatch: 32 })).toMatchObject({
      micro_batch: 32,
      accumulation: 2,
    });
  });
});
