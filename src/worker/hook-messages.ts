import { z } from 'zod';

/**
 * What the Python hook says, one JSON object a line. Unknown fields are dropped, unknown messages refused. What is kept of a
 * message is bounded: a job can say anything in the hook's place.
 */

/** No device and no host holds a PiB. */
const MOST_BYTES = 2 ** 50;
const bytes = z.number().nonnegative().max(MOST_BYTES).nullable().catch(null);
const change = z.number().min(-MOST_BYTES).max(MOST_BYTES).nullable().catch(null);
/** Batch sizes, steps, samples. */
const count = z
  .number()
  .int()
  .nonnegative()
  .max(2 ** 40);
const size = count.min(1);
const seconds = z.number().nonnegative().max(1e9);

/** Text of which so many characters are kept. */
const text = (most: number) => z.string().transform((value) => value.slice(0, most));

/** `dataset_on_device`, …: those of warnings. */
const CODE = /^[a-z][a-z_]{0,47}$/;
const MOST_CODES = 32;
/** Ranks of one launch; seconds of so many steps are kept. */
const MOST_RANKS = 4096;
const MOST_STEPS = 1024;

const hello = z.object({
  t: z.literal('hello'),
  v: z.literal(1),
  pid: count,
  rank: z
    .number()
    .int()
    .nonnegative()
    .max(MOST_RANKS - 1),
  world_size: z.number().int().positive().max(MOST_RANKS),
  python: text(100).optional(),
  torch: text(100).nullable().optional(),
  device: text(100).nullable().optional(),
});

const loop = z.object({
  t: z.literal('loop'),
  own_batch: size.nullable(),
  own_accumulation: size.nullable(),
  samples: z
    .number()
    .nonnegative()
    .max(2 ** 50)
    .nullable()
    .optional(),
  can: z.object({
    batch: z.boolean(),
    accumulation: z.boolean(),
    /** bf16, at its full speed. */
    amp: z.boolean(),
    /** fp16, with a loss scaler. */
    fp16: z.boolean().default(false),
    checkpointing: z.boolean(),
    offload: z.boolean().default(false),
    switch_rung: z.boolean().default(false),
  }),
  warnings: z
    .array(z.string())
    .default([])
    .transform((codes) => codes.filter((code) => CODE.test(code)).slice(0, MOST_CODES)),
});

const measured = z.object({
  t: z.literal('measured'),
  micro_batch: size,
  accumulation: size,
  steps: count,
  total_bytes: bytes,
  forward_backward_bytes: bytes,
  optimizer_bytes: bytes,
  reserved_bytes: bytes,
  resident_bytes: bytes,
  alloc_retries: count.default(0),
  step_s: z
    .array(seconds)
    .default([])
    .transform((steps) => steps.slice(0, MOST_STEPS)),
  own_accumulation: size.nullable().optional(),
  own_amp: z.boolean().optional(),
  parameter_bytes: bytes.optional(),
  gradient_bytes: bytes.optional(),
  optimizer_state_bytes: bytes.optional(),
  growth_bytes_per_step: change.optional(),
  /** The loop ended by itself before it had made all of the steps: these are all that there are. */
  short: z.boolean().optional(),
  /** The variable that grows with the steps, with its line. */
  kept_by: text(500).nullable().optional(),
  /** Steps at the end in which a caching allocator asked the driver for nothing; null: there is none. */
  quiet_steps: count.nullable().optional(),
  /** By how much what it holds rose with each of the later steps. */
  creep_bytes_per_step: change.optional(),
});

const exception = z.object({
  t: z.literal('exception'),
  class: text(200),
  message: text(4000),
  /** `after`: the training loop had ended, and none of the others was seen. */
  phase: z.enum(['load', 'train', 'eval', 'save', 'after', 'unknown']).catch('unknown'),
  /** `false`: gradients were off where it was raised. */
  gradients: z.boolean().optional(),
  frame: text(500).nullable().optional(),
  oom: z.boolean(),
  /** The variable of the script that holds a good part of the memory, and grew. */
  kept_by: text(500).nullable().optional(),
  micro_batch: count.nullable().catch(null).optional(),
  traceback: text(8192).optional(),
});

const step = z.object({
  t: z.literal('step'),
  n: count,
  samples: z
    .number()
    .nonnegative()
    .max(2 ** 50)
    .nullable()
    .optional(),
  /** In use by the framework once the optimizer has stepped; null where its device cannot be told. */
  resident_bytes: bytes.nullable().optional(),
});

const remark = z.object({
  t: z.enum(['eval', 'save', 'warn']),
  code: z.string().regex(CODE).optional(),
  message: text(1000).default(''),
});

const cut = z.object({ t: z.literal('cut'), cut: z.enum(['model', 'loader']), why: text(1000) });

const bye = z.object({ t: z.literal('bye'), reason: text(100), message: text(1000).default('') });

export const hookMessage = z.discriminatedUnion('t', [hello, loop, measured, exception, step, remark, cut, bye]);

export type HookMessage = z.infer<typeof hookMessage>;
export type Hello = z.infer<typeof hello>;
export type Loop = z.infer<typeof loop>;
export type Measured = z.infer<typeof measured>;
export type HookException = z.infer<typeof exception>;
export type Step = z.infer<typeof step>;

/** What the worker says to the hook. */
export type HookOrder =
  | {
      t: 'probe';
      micro_batch: number;
      accumulation: number;
      amp: 'off' | 'bf16' | 'fp16';
      checkpointing: boolean;
      offload: boolean;
      steps: number;
      /** Samples of the batch that the script's loop sees; null: not fixed. */
      batch: number | null;
      /** Where samples differ in length and memory is cached, other samples than the longest have their turn too. */
      vary: boolean;
    }
  /** The probe goes on where it is, for more steps. */
  | { t: 'more'; steps: number }
  | { t: 'go' }
  | { t: 'end' };
