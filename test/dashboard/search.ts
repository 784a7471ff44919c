import type { Observation } from '../../src/contract/measurement.js';

/** What a search was told of one size on the first rung; `total` null: it ran out of memory. */
export const observation = (
  microBatch: number,
  total: number | null,
  changes: Partial<Observation> = {},
): Observation => ({
  rung: { amp: 'off', checkpointing: false },
  micro_batch: microBatch,
  accumulation: 1,
  launch: 1,
  fresh: microBatch === 1,
  steps: 3,
  outcome: total === null ? 'device_oom' : 'fit',
  ambiguous: false,
  phase: total === null ? 'train' : null,
  peaks: {
    total_bytes: total,
    forward_backward_bytes: total,
    optimizer_bytes: null,
    reserved_bytes: null,
    resident_bytes: null,
  },
  alloc_retries: 0,
  step_s: total === null ? null : 0.02,
  refused_bytes: total === null ? 4096 : null,
  evidence: total === null ? 'RuntimeError: out of memory' : null,
  alive: true,
  ...changes,
});
