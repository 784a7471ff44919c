import { z } from 'zod';

/** The public documents, as programs outside rely on them. Fields may be added; none may go or change its kind. */

const count = z.number().int().min(1);
const bytes = z.number().int().nonnegative();
const time = z.iso.datetime();
const amp = z.enum(['off', 'bf16', 'fp16']);
const failureClass = z.enum([
  'device_oom',
  'host_oom',
  'shm',
  'disk_full',
  'network',
  'device_fault',
  'user_error',
  'timeout',
  'killed',
  'cancelled',
]);

const config = z.object({
  micro_batch: count,
  accumulation: count,
  world_size: count,
  effective_batch: count,
  amp,
  checkpointing: z.boolean(),
});

const probe = z.object({
  launch: count,
  micro_batch: count,
  amp,
  checkpointing: z.boolean(),
  steps: z.number().int(),
  outcome: z.union([z.literal('fit'), failureClass]),
  peak_bytes: bytes.nullable(),
  step_s: z.number().nullable(),
  evidence: z.string().nullable(),
});

const failure = z.object({
  class: failureClass,
  evidence: z.string().nullable(),
  fields: z.record(z.string(), z.union([z.number(), z.string(), z.null()])),
});

const part = bytes.nullable();

export const memory = z.object({
  micro_batch: count,
  accumulation: count,
  peak_bytes: bytes,
  peak_in: z.enum(['forward_backward', 'optimizer']).nullable(),
  parameters: part,
  gradients: part,
  optimizer_state: part,
  activations: part,
  activations_per_sample: part,
  allocator_slack: part,
  context: part,
  rest: bytes,
  curve: z.object({
    fits: z.array(z.object({ micro_batch: count, peak_bytes: bytes })),
    out_of_memory: z.array(count),
    prediction: z.object({ base_bytes: z.number().int(), bytes_per_sample: z.number().int() }).nullable(),
  }),
});

export const findBatch = z.object({
  schema: z.literal(1),
  key: z.string(),
  name: z.string(),
  status: z.enum(['found', 'exhausted', 'failed']),
  failure: failure.optional(),
  device: z.object({ id: z.string(), model: z.string(), total_bytes: bytes, budget_bytes: bytes }),
  config: config.nullable(),
  max_micro_batch: count.nullable(),
  peak_bytes: bytes.nullable(),
  headroom_pct: z.number().nullable(),
  samples_per_s: z.number().nullable(),
  verified_steps: count.nullable(),
  launches: z.number().int(),
  startup_s: z.number().nullable(),
  wall_s: z.number(),
  probes: z.array(probe),
  apply: z
    .object({ argv: z.array(z.string()), env: z.record(z.string(), z.string()), oomtune: z.array(z.string()) })
    .nullable(),
  memory: memory.nullable(),
});

export const diagnosis = z.object({
  class: z.union([failureClass, z.literal('ok')]),
  certain: z.boolean(),
  evidence: z.string().nullable(),
  line: z.number().nullable(),
  fields: z.object({
    tried_bytes: z.number().nullable(),
    total_bytes: z.number().nullable(),
    free_bytes: z.number().nullable(),
    allocated_bytes: z.number().nullable(),
    reserved_bytes: z.number().nullable(),
    gpu: z.number().nullable(),
  }),
  phase: z.enum(['train', 'load', 'eval', 'save', 'unknown']),
  cause: z.string(),
  advice: z.string(),
});

export const runReport = z.object({
  schema: z.literal(1),
  job: z.string(),
  exit_code: z.number().int().nullable(),
  signal: z.string().nullable(),
  outcome: z.enum(['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout']),
  devices: z.array(z.object({ device: z.string(), peak_bytes: bytes, budget_bytes: bytes.nullable() })),
  refused: z.number().int(),
  resident_bytes: bytes.nullable(),
  failure: diagnosis.nullable(),
});

const state = z.enum([
  'queued',
  'held',
  'searching',
  'running',
  'succeeded',
  'failed',
  'cancelled',
  'exhausted',
  'timeout',
]);

export const status = z.object({
  schema: z.literal(1),
  jobs: z.array(
    z.object({
      job: z.string().regex(/^j-/),
      name: z.string(),
      state,
      reason: z.string().nullable(),
      failure: failure.nullable(),
      command: z.array(z.string()),
      host: z.string().nullable(),
      devices: z.array(z.string()),
      config: config.nullable(),
      submitted_at: time,
      started_at: time.nullable(),
      ended_at: time.nullable(),
      exit_code: z.number().int().nullable(),
    }),
  ),
});

export const submitted = z.object({ schema: z.literal(1), job: z.string().regex(/^j-/) });

export const daemonStatus = z.object({
  schema: z.literal(1),
  running: z.boolean(),
  pid: z.number().int(),
  host: z.string(),
  version: z.string(),
  redis: z.string(),
});

export const devices = z.object({
  schema: z.literal(1),
  devices: z
    .array(
      z.object({
        id: z.string().regex(/^(cpu|cuda:\d+)$/),
        uuid: z.string(),
        model: z.string(),
        total_bytes: bytes,
        used_bytes: bytes,
        reserved_bytes: bytes,
        processes: z.array(z.object({ pid: z.number().int(), name: z.string(), used_bytes: bytes, ours: z.boolean() })),
      }),
    )
    .min(1),
});

export const error = z.object({
  schema: z.literal(1),
  error: z.object({ code: z.string().regex(/^OOMTUNE_/), message: z.string().min(1), remedy: z.string().min(1) }),
});
