import { z } from 'zod';
import { bytes, count, text, time, whole } from './fields.js';
import { knobAnswer } from './knob.js';
import { memoryBreakdown, probeRecord, speedComparison } from './measurement.js';
import { rehearsal } from './rehearsal.js';
import { cutPlace, shownRung } from './rung.js';

const verifiedCommand = z.object({
  /** SHA-256 (hex) of its words. */
  digest: text(256),
  /** What it asks for by itself; null: not known. */
  own_batch: count.nullable(),
  own_accumulation: count.nullable(),
  /** Samples of its data set; null: not known. */
  own_samples: bytes.nullish(),
});
export type VerifiedCommand = z.infer<typeof verifiedCommand>;

/** `{oomtune}:config:<key>` as other programs read it; all values are strings in Redis. */
export const recommendation = z.object({
  schema: z.literal(1),
  key: text(512).min(1),
  name: text(256).min(1),
  gpu_model: text(256),
  budget_bytes: bytes,
  world_size: count,
  micro_batch: count,
  accumulation: count,
  effective_batch: count,
  /** Tokens of a micro-batch at most, its padding included; absent: samples are counted. */
  micro_batch_tokens: count.optional(),
  /** A knob is absent where it is off, or the record is an earlier version's. */
  ...shownRung.shape,
  max_micro_batch: count,
  known_bad_micro_batch: count.nullable(),
  peak_bytes: bytes.nullable(),
  samples_per_s: z.number().nonnegative().nullable(),
  verified_at: time,
  status: z.enum(['verified', 'demoted']),
  command_digest: text(256),
  torch: text(256).nullable(),
  driver: text(256).nullable(),
  /** What the command asks for by itself, so that a later run can keep it; null: not known. */
  own_batch: count.nullish(),
  own_accumulation: count.nullish(),
  /** Where the hook cut the batches that were measured; null: it cut none. */
  cut: cutPlace.nullish(),
  /** The commands that it is known to hold for, to the letter, the latest last. Absent: recorded by an earlier version. */
  commands: z.array(verifiedCommand).max(1000).optional(),
  /** Whose job measured it, and the number of that account; absent: where a daemon serves one user. */
  owner: text(256).optional(),
  uid: whole.optional(),
  /** It was measured with an allocator whose segments can grow, and is run so. */
  expandable_segments: z.boolean().optional(),
  /** What fills the memory at this configuration; null: its peak could not be measured. */
  memory: memoryBreakdown.nullish(),
  /** What a rehearsal at this configuration has shown of evaluation, generation and saving; absent: there was none. */
  rehearsal: rehearsal.nullish(),
  /** With objective throughput: the speeds that decided on the rung. */
  comparison: speedComparison.nullish(),
  /** The record is of this knob of the command's own, at the configuration above; absent: it is of the batch. */
  knob: knobAnswer.optional(),
  probes: z.array(probeRecord).max(10_000),
});
export type Recommendation = z.infer<typeof recommendation>;
