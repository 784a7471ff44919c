import { z } from 'zod';

/** What the Python hook says, one JSON object a line. Unknown fields are dropped, unknown messages refused. */

const bytes = z.number().nonnegative().nullable().catch(null);

const hello = z.object({
  t: z.literal('hello'),
  v: z.literal(1),
  pid: z.number().int(),
  rank: z.number().int().nonnegative(),
  world_size: z.number().int().positive(),
  python: z.string().optional(),
  torch: z.string().nullable().optional(),
  device: z.string().nullable().optional(),
});

const loop = z.object({
  t: z.literal('loop'),
  own_batch: z.number().int().positive().nullable(),
  own_accumulation: z.number().int().positive().nullable(),
  samples: z.number().nullable().optional(),
  can: z.object({
    batch: z.boolean(),
    accumulation: z.boolean(),
    amp: z.boolean(),
    checkpointing: z.boolean(),
    offload: z.boolean().default(false),
    switch_rung: z.boolean().default(false),
  }),
  warnings: z.array(z.string()).default([]),
});

const measured = z.object({
  t: z.literal('measured'),
  micro_batch: z.number().int().positive(),
  accumulation: z.number().int().positive(),
  steps: z.number().int().nonnegative(),
  total_bytes: bytes,
  forward_backward_bytes: bytes,
  optimizer_bytes: bytes,
  reserved_bytes: bytes,
  resident_bytes: bytes,
  alloc_retries: z.number().nonnegative().default(0),
  step_s: z.array(z.number().nonnegative()).default([]),
  own_accumulation: z.number().int().positive().nullable().optional(),
  own_amp: z.boolean().optional(),
  parameter_bytes: bytes.optional(),
  gradient_bytes: bytes.optional(),
  optimizer_state_bytes: bytes.optional(),
  growth_bytes_per_step: z.number().nullable().optional(),
  /** Steps at the end in which a caching allocator asked the driver for nothing; null: there is none. */
  quiet_steps: z.number().int().nonnegative().nullable().optional(),
  /** By how much what it holds rose with each of the later steps. */
  creep_bytes_per_step: z.number().nullable().optional(),
});

const exception = z.object({
  t: z.literal('exception'),
  class: z.string(),
  message: z.string(),
  phase: z.enum(['load', 'train', 'eval', 'save', 'unknown']).catch('unknown'),
  frame: z.string().nullable().optional(),
  oom: z.boolean(),
  micro_batch: z.number().nullable().optional(),
  traceback: z.string().optional(),
});

const step = z.object({
  t: z.literal('step'),
  n: z.number().int().nonnegative(),
  samples: z.number().nullable().optional(),
  allocated_bytes: bytes.optional(),
  resident_bytes: bytes.optional(),
});

const remark = z.object({
  t: z.enum(['eval', 'save', 'warn']),
  code: z.string().optional(),
  message: z.string().default(''),
});

const bye = z.object({ t: z.literal('bye'), reason: z.string(), message: z.string().default('') });

export const hookMessage = z.discriminatedUnion('t', [hello, loop, measured, exception, step, remark, bye]);

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
      /** Where samples differ in length and memory is cached, other samples than the longest have their turn too. */
      vary: boolean;
    }
  /** The probe goes on where it is, for more steps. */
  | { t: 'more'; steps: number }
  | { t: 'go' }
  | { t: 'end' };
