import { z } from 'zod';
import { bytes, count, text } from './fields.js';
import { shownRung } from './rung.js';

const whole = z.number().int().nonnegative();

/** `estimate --json`. Bytes; what is said of a card is worked out, nothing was run on it. */
export const estimateReport = z.object({
  schema: z.literal(1),
  name: z.string(),
  /** The script's own batch, as its loader has it; null: the command names none. */
  own: z
    .object({
      micro_batch: count,
      accumulation: count,
      /** What it needs on a card of the list's first model, and of which its tensors. */
      peak_bytes: bytes,
      reserved_bytes: bytes,
      allocated_bytes: bytes,
    })
    .nullable(),
  rung: shownRung,
  torch: z.string().nullable(),
  /** The sizes whose steps were followed. */
  followed: z.array(count),
  /** Of what training keeps from step to step; null: not known. */
  parameter_bytes: bytes.nullable(),
  gradient_bytes: bytes.nullable(),
  optimizer_state_bytes: bytes.nullable(),
  /** Of `--micro-batch`: what these need on a card like the first of the list. */
  asked: z.array(z.object({ micro_batch: count, peak_bytes: bytes, reserved_bytes: bytes, allocated_bytes: bytes })),
  cards: z.array(
    z.object({
      name: z.string(),
      total_bytes: bytes,
      /** The CUDA context and what libraries load beside torch's allocator. */
      context_bytes: bytes,
      /** Measured on such a card, or taken from one that was. */
      context_measured: z.boolean(),
      /** Whether the script's own batch fits; null: it has none. */
      own_fits: z.boolean().nullable(),
      /** The largest that leaves the headroom free; 0: not even one sample. */
      micro_batch: whole,
      /** What that needs; null: nothing fits. */
      peak_bytes: bytes.nullable(),
    }),
  ),
  headroom_pct: z.number(),
  /** What the estimate cannot know of this script, in words. */
  notes: z.array(text(2000)),
});
export type EstimateReport = z.infer<typeof estimateReport>;

const events = z.array(z.number().int());

/** What the hook writes of the steps at one size, for the worker: see `Trace` of the tuner. */
export const trace = z.object({
  micro_batch: count,
  prelude: events,
  events,
  steps: events,
  kept: events,
  /** It used cuBLAS, and cuDNN. */
  multiplies: z.boolean(),
  convolves: z.boolean(),
  notes: z.array(text(2000)),
});
export type FollowedTrace = z.infer<typeof trace>;
