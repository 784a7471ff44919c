import { z } from 'zod';
import { diagnosis } from './diagnosis.js';
import { failure } from './failure.js';
import { bytes, count, text, time, whole } from './fields.js';
import { knobAnswer } from './knob.js';
import { refusal } from './launch.js';
import { memoryBreakdown, probeRecord, speedComparison } from './measurement.js';
import { rehearsal } from './rehearsal.js';
import { cut, shownConfig } from './rung.js';

/** The parts of the peak of `config`, and the curve of peaks on its rung. Bytes. */
export const memoryReport = memoryBreakdown.extend({
  curve: z.object({
    /** What fitted, ascending; a size measured more than once counts as it was last. */
    fits: z.array(z.object({ micro_batch: count, peak_bytes: bytes })),
    /** Sizes that ran out of memory, ascending: what they would have needed is not known. */
    out_of_memory: z.array(count),
    /** The prediction: peak = base_bytes + bytes_per_sample x micro-batch; null: too few sizes were measured. */
    prediction: z.object({ base_bytes: z.number(), bytes_per_sample: z.number() }).nullable(),
  }),
});
export type MemoryReport = z.infer<typeof memoryReport>;

/** `find-batch --json`. */
export const findBatchReport = z.object({
  schema: z.literal(1),
  key: z.string(),
  name: z.string(),
  status: z.enum(['found', 'exhausted', 'failed']),
  failure: failure
    .extend({
      advice: z.string().optional(),
      /** In a sentence what became of it (`It crashed in native code (SIGSEGV).`), where a process of it failed. */
      cause: z.string().optional(),
      /** `leak`: memory grows with every step, so no size is recommended. `eval`, `save`: the training fits, but not that. */
      reason: z.enum(['leak', 'eval', 'save']).optional(),
    })
    .optional(),
  /** `room_bytes`: what strangers left of the budget, where they did not leave all of it. */
  device: z.object({
    id: z.string(),
    model: z.string(),
    total_bytes: bytes,
    budget_bytes: bytes,
    room_bytes: bytes.optional(),
  }),
  config: shownConfig.nullable(),
  /** What the command asks for by itself, and how many samples there are; null: no batch of its own was seen. */
  own: z
    .object({ micro_batch: count, accumulation: count, effective_batch: count, samples: z.number().nullable() })
    .nullable(),
  max_micro_batch: count.nullable(),
  peak_bytes: bytes.nullable(),
  headroom_pct: z.number().nullable(),
  samples_per_s: z.number().nullable(),
  verified_steps: whole.nullable(),
  /** With `--knob`: what was found of it, at `config`; absent: the batch was searched. */
  knob: knobAnswer.optional(),
  /** With objective throughput: the speeds that decided on the rung; absent: there was one rung only. */
  comparison: speedComparison.optional(),
  /** With `--probe-eval`: what a rehearsal of the job has shown; absent: there was none. */
  rehearsal: rehearsal.optional(),
  launches: whole,
  startup_s: z.number().nullable(),
  wall_s: z.number(),
  probes: z.array(probeRecord),
  /** `own`: runs it at the effective batch that it asks for by itself; absent where there is none, or another was asked for. */
  apply: z
    .object({
      argv: z.array(z.string()),
      env: z.record(z.string(), z.string()),
      oomtune: z.array(z.string()),
      own: z.array(z.string()).optional(),
    })
    .nullable(),
  /** What fills the device's memory at `config`; null: nothing was found, or its peak could not be measured. */
  memory: memoryReport.nullable(),
  notes: z.array(z.string()),
});
export type FindBatchReport = z.infer<typeof findBatchReport>;

/** The result of a run: `run --report FILE` writes it, and records of submitted jobs keep it. */
export const runReport = z.object({
  schema: z.literal(1),
  job: z.string(),
  exit_code: z.number().int().nullable(),
  signal: z.string().nullable(),
  outcome: z.enum(['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout']),
  config: shownConfig.nullable(),
  /** Where its batches were cut into micro-batches; null: they were not. */
  cut: cut.nullable(),
  key: z.string().nullable(),
  devices: z.array(
    z.object({
      device: z.string(),
      peak_bytes: bytes,
      budget_bytes: bytes.nullable(),
      /** Whose figures told contexts and modules: each `process`'s, or (as in a container) the whole `device`'s; null: no GPU. */
      measured_by: z.enum(['process', 'device']).nullable(),
    }),
  ),
  refused: whole,
  refusals: z.array(refusal),
  blind: z.boolean(),
  /** The most that any one process of the job had in memory, whatever it used it for; null: not known. */
  resident_bytes: z.number().nullable(),
  failure: diagnosis.nullable(),
  /**
   * The innermost line of the script's own that it failed at (`train.py:41 in main`; null: not told), and how many optimizer steps
   * were seen before. Absent: it did not fail, or the hook told neither.
   */
  died_at: z.object({ line: text(500).nullable(), steps: whole }).optional(),
  /** With `--probe-eval`: what a rehearsal of the job has shown; absent: there was none. */
  rehearsal: rehearsal.optional(),
  launches: whole,
  wall_s: z.number(),
  /** When the launch that it ended with was over, whoever looks later; absent: it ended without one. */
  ended_at: time.optional(),
  /** Which process of it was killed and is still there, as the kernel holds on to it; absent: nothing of it is left. */
  still_running: z.string().optional(),
  /** With `--requeue`: what its next start does otherwise, so that a scheduler should start it again; absent: nothing. */
  next_start: z.string().optional(),
});
export type RunReport = z.infer<typeof runReport>;
