import { describe, expect, it } from 'vitest';
import type { Observation } from '../../src/contract/measurement.js';
import type { Config, Rung } from '../../src/contract/rung.js';
import { PARTS } from '../../src/tuner/index.js';
import { jobBudget, jobMemory, partsOf } from '../../src/worker/memory/memory-report.js';
import { options } from '../store/samples.js';

const MIB = 1024 ** 2;
const PLAIN: Rung = { amp: 'off', checkpointing: false };
const HALF: Rung = { amp: 'bf16', checkpointing: false };

const seen = (rung: Rung, microBatch: number, outcome: Observation['outcome'] = 'fit'): Observation => ({
  rung,
  micro_batch: microBatch,
  outcome,
  accumulation: 1,
  launch: 1,
  fresh: true,
  steps: 3,
  ambiguous: false,
  phase: null,
  peaks: {
    total_bytes: (100 + 4 * microBatch) * MIB,
    forward_backward_bytes: (95 + 4 * microBatch) * MIB,
    optimizer_bytes: 80 * MIB,
    reserved_bytes: null,
    resident_bytes: null,
    parameter_bytes: 20 * MIB,
    gradient_bytes: 20 * MIB,
    optimizer_state_bytes: 40 * MIB,
  },
  alloc_retries: 0,
  step_s: 0.1,
  refused_bytes: null,
  evidence: null,
  alive: true,
});
const config = (micro_batch: number, rung = PLAIN): Config => ({
  ...rung,
  micro_batch,
  accumulation: 1,
  world_size: 1,
  effective_batch: micro_batch,
});
const journal = [seen(PLAIN, 1), seen(PLAIN, 8), seen(PLAIN, 16), seen(PLAIN, 32, 'device_oom'), seen(HALF, 24)];

describe('the memory of a job', () => {
  it('is that of the size it runs with', () => {
    const memory = jobMemory({ config: config(8), journal }, 200 * MIB);
    expect(memory).toMatchObject({
      micro_batch: 8,
      peak_bytes: 132 * MIB,
      parameters: 20 * MIB,
      gradients: 20 * MIB,
      optimizer_state: 40 * MIB,
      activations_per_sample: 4 * MIB,
      activations: 32 * MIB,
    });
    expect(memory?.curve.out_of_memory).toEqual([32]);
    expect(PARTS.reduce((sum, part) => sum + (memory?.[part] ?? 0), 0)).toBe(memory?.peak_bytes);
    expect(partsOf(memory as never).reduce((sum, { bytes }) => sum + bytes, 0)).toBe(memory?.peak_bytes);
  });

  it('is that of the largest that fitted on its rung, where its own size was not measured', () => {
    expect(jobMemory({ config: config(4), journal }, 200 * MIB)?.micro_batch).toBe(16);
    expect(jobMemory({ config: config(4, HALF), journal }, 200 * MIB)?.micro_batch).toBe(24);
    expect(jobMemory({ config: config(4, { amp: 'fp16', checkpointing: true }), journal }, 200 * MIB)).toBeNull();
  });

  it('is that of the rung tried last, while the search goes on', () => {
    expect(jobMemory({ config: null, journal }, null)?.micro_batch).toBe(24);
    expect(jobMemory({ config: null, journal: journal.slice(0, 4) }, null)?.micro_batch).toBe(16);
    expect(jobMemory({ config: null, journal: [seen(PLAIN, 1, 'device_oom')] }, null)).toBeNull();
    expect(jobMemory({ config: null, journal: [] }, null)).toBeNull();
  });

  it('is held against what the ledger said, what was verified, or what was written', () => {
    const job = { options: options({ budget: '200MiB' }) };
    expect(jobBudget(job, { budget_bytes: 5 }, 3)).toBe(3);
    expect(jobBudget(job, { budget_bytes: 5 }, null)).toBe(5);
    expect(jobBudget(job, null, null)).toBe(200 * MIB);
    for (const budget of [null, '80%', 'much']) {
      expect(jobBudget({ options: options({ budget }) }, null, null), String(budget)).toBeNull();
    }
  });
});
