import { z } from 'zod';
import { count, whole } from './fields.js';
import { MOST_BYTES } from './measurement.js';

/** What a script does besides loading; `generate` is mostly a part of its evaluation. */
export const rehearsedPhase = z.enum(['train', 'eval', 'generate', 'save']);
export type RehearsedPhase = z.infer<typeof rehearsedPhase>;

const figure = z.number().nonnegative().max(MOST_BYTES).nullable();

/** What one phase took, at most; null: not known. */
export const phasePeak = z.object({
  phase: rehearsedPhase,
  peak_bytes: figure,
  /** What the evaluation takes with all its batches, where that is more: its outputs are collected on the device. */
  whole_bytes: figure,
  /** Of the evaluation: batches that ran, all that its loader has, the samples in each, and what the training had left in memory, other than gradients and optimizer state. */
  batches: whole.nullable(),
  of_batches: whole.nullable(),
  batch: count.nullable(),
  held_bytes: figure,
});
export type PhasePeak = z.infer<typeof phasePeak>;

/** What a rehearsal of the job has shown (`--probe-eval`). */
export const rehearsal = z.object({
  phases: z.array(phasePeak).max(4),
  /** Optimizer steps that it made. */
  steps: whole,
  /** The phase that ran out of memory, or would with all its batches; null: all that was seen fits. */
  out_of_memory: rehearsedPhase.nullable(),
});
export type Rehearsal = z.infer<typeof rehearsal>;
