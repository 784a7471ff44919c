import { z } from 'zod';
import { DEVICE_CHOICE } from '../devices/index.js';
import { FAILURE_CLASSES } from './failure-classes.js';
import type { JobOptions, JobRecord, JobState, ProbeRecord, Recommendation, SubmittedEnvironment } from './types.js';

/**
 * What is read back from Redis is checked like any other input: whoever can write there can run commands, and a record
 * of another version must not crash a daemon that runs for weeks.
 */

const text = (most: number) => z.string().max(most);
const time = z.iso.datetime({ offset: true });
const bytes = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);
const count = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
const amp = z.enum(['off', 'bf16', 'fp16']);
const cutPlace = z.enum(['model', 'loader']);

/** Optimizer steps of a probe, at most. */
export const MOST_PROBE_STEPS = 1000;

export const failureClass = z.enum(FAILURE_CLASSES);
const outcome = z.union([z.literal('fit'), failureClass]);

export const JOB_STATES = [
  'queued',
  'held',
  'searching',
  'running',
  'succeeded',
  'failed',
  'cancelled',
  'exhausted',
  'timeout',
] as const satisfies readonly JobState[];

/** States in which nothing more will happen. */
export const ENDED_STATES: readonly JobState[] = ['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout'];

/** No NUL: such an argument could not be passed to a program. */
const argument = text(131_072).refine((value) => !value.includes('\0'), 'an argument without NUL');
export const command = z
  .array(argument)
  .min(1)
  .max(10_000)
  .refine((argv) => argv[0] !== '', 'a program to run');

export const probe: z.ZodType<ProbeRecord> = z.object({
  launch: count,
  micro_batch: count,
  amp,
  checkpointing: z.boolean(),
  offload: z.boolean().optional(),
  expandable_segments: z.boolean().optional(),
  steps: z.number().int().nonnegative(),
  outcome,
  peak_bytes: bytes.nullable(),
  step_s: z.number().nonnegative().nullable(),
  samples_per_s: z.number().nonnegative().nullable().optional(),
  wall_s: z.number().nonnegative().optional(),
  evidence: text(65_536).nullable(),
  why: text(4096).optional(),
});

const part = bytes.nullable();
const anatomy = z.object({
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
});

export const recommendation: z.ZodType<Recommendation> = z.object({
  schema: z.literal(1),
  key: text(512).min(1),
  name: text(256).min(1),
  gpu_model: text(256),
  budget_bytes: bytes,
  world_size: count,
  micro_batch: count,
  accumulation: count,
  effective_batch: count,
  amp,
  checkpointing: z.boolean(),
  max_micro_batch: count,
  known_bad_micro_batch: count.nullable(),
  peak_bytes: bytes.nullable(),
  samples_per_s: z.number().nonnegative().nullable(),
  verified_at: time,
  status: z.enum(['verified', 'demoted']),
  command_digest: text(256),
  torch: text(256).nullable(),
  driver: text(256).nullable(),
  own_batch: count.nullish(),
  own_accumulation: count.nullish(),
  cut: cutPlace.nullish(),
  commands: z
    .array(
      z.object({
        digest: text(256),
        own_batch: count.nullable(),
        own_accumulation: count.nullable(),
        own_samples: bytes.nullish(),
      }),
    )
    .max(1000)
    .optional(),
  expandable_segments: z.boolean().optional(),
  offload: z.boolean().optional(),
  memory: anatomy.nullish(),
  comparison: z
    .object({
      together: z.boolean(),
      speeds: z
        .array(
          z.object({
            amp,
            checkpointing: z.boolean(),
            offload: z.boolean().optional(),
            micro_batch: count,
            samples_per_s: z.number().nonnegative(),
            spread: z.number().nonnegative().nullable(),
            rounds: count,
          }),
        )
        .max(100),
    })
    .nullish(),
  probes: z.array(probe).max(10_000),
});

const absolute = text(4096).refine((path) => path.startsWith('/') && !path.includes('\0'), 'an absolute path');
const word = text(256).min(1);

const jobIds = z.array(z.string().regex(/^j-[a-z0-9]{4,32}$/)).max(1000);

export const jobOptions: z.ZodType<JobOptions> = z.object({
  name: text(256).nullable(),
  device: z.string().regex(DEVICE_CHOICE).nullable(),
  budget: text(64).nullable(),
  gpus: z.number().int().min(1).max(1024),
  exclusive: z.boolean().default(false),
  effectiveBatch: count.nullable(),
  minBatch: count,
  maxBatch: count.nullable(),
  amp: z.enum(['auto', 'off', 'bf16', 'fp16']),
  checkpointing: z.enum(['auto', 'off', 'on']),
  accumulation: z.enum(['auto', 'off']),
  cut: z.enum(['auto', 'model', 'loader']).optional(),
  exact: z.boolean(),
  objective: z.enum(['max-batch', 'throughput']),
  headroomPct: z.number().min(0).max(90),
  preset: word,
  steps: z.number().int().min(2).max(MOST_PROBE_STEPS),
  timeoutSeconds: z.number().positive().nullable(),
  timeSeconds: z.number().positive().nullish(),
  maxLaunches: count.nullable(),
  /** Names only: values stay on the host that submitted. */
  env: z.array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'a name without a value')).max(10_000),
  envFile: absolute.nullable(),
  cwd: absolute,
  tune: z.boolean(),
  priority: z.number().int().min(-1_000_000).max(1_000_000),
  after: jobIds,
  afterAny: jobIds.optional(),
  sweep: z
    .object({
      sweep: z.string().regex(/^s-[a-z0-9]{4,32}$/),
      member: z.number().int().min(0).max(1_000_000),
      atOnce: count.nullable(),
      index: z.number().int().min(0).max(1_000_000_000).nullable(),
    })
    .optional(),
  share: z.boolean(),
  gpuModel: word.nullable(),
  host: word.nullable(),
  resumeArg: argument.nullable(),
  retries: z.number().int().min(0).max(1000),
  restart: z.boolean().optional(),
});

const rung = z.object({ amp, checkpointing: z.boolean(), offload: z.boolean().optional() });
const config = rung.extend({
  micro_batch: count,
  accumulation: count,
  world_size: count,
  effective_batch: count,
  expandable_segments: z.boolean().optional(),
});
const size = z.number().nonnegative().nullable();

const observation = z.object({
  rung,
  micro_batch: count,
  accumulation: count,
  launch: count,
  fresh: z.boolean(),
  steps: z.number().int().nonnegative(),
  outcome,
  ambiguous: z.boolean(),
  phase: z.enum(['load', 'train', 'eval', 'save', 'unknown']).nullable(),
  peaks: z.object({
    total_bytes: size,
    forward_backward_bytes: size,
    optimizer_bytes: size,
    reserved_bytes: size,
    resident_bytes: size,
    parameter_bytes: size.optional(),
    gradient_bytes: size.optional(),
    optimizer_state_bytes: size.optional(),
  }),
  alloc_retries: z.number().nonnegative(),
  restless: z.boolean().optional(),
  rise_bytes_per_step: size.optional(),
  growth_bytes_per_step: size.optional(),
  kept_by: text(1024).nullable().optional(),
  short: z.boolean().optional(),
  uncut: z.boolean().optional(),
  expandable_segments: z.boolean().optional(),
  step_s: size,
  samples_per_s: size.optional(),
  wall_s: z.number().nonnegative().optional(),
  refused_bytes: size,
  unallocated_bytes: size.optional(),
  free_bytes: size.optional(),
  evidence: text(65_536).nullable(),
  alive: z.boolean(),
});

const names = z.array(text(4096)).max(1000);

export const submittedEnvironment: z.ZodType<SubmittedEnvironment> = z.object({
  host: text(256),
  /** Part of a path. */
  file: z
    .string()
    .regex(/^[0-9a-f]{16}$/)
    .nullable(),
  bound: names,
  withheld: names,
});

/** What this version writes. A higher number is another version's business. */
export const JOB_SCHEMA = 1;

export const jobRecord: z.ZodType<JobRecord> = z.object({
  schema: z.literal(JOB_SCHEMA),
  job: z.string().regex(/^j-[a-z0-9]{4,32}$/),
  name: text(256),
  state: z.enum(JOB_STATES),
  reason: text(65_536).nullable(),
  failure: z
    .object({
      class: failureClass,
      evidence: text(65_536).nullable(),
      fields: z.record(z.string(), z.union([z.number(), z.string(), z.null()])),
    })
    .nullable(),
  command,
  options: jobOptions,
  environment: submittedEnvironment.nullish(),
  host: text(256).nullable(),
  devices: z.array(text(64)).max(1024),
  config: config.nullable(),
  cut: z.object({ cut: cutPlace, why: text(1000) }).nullish(),
  key: text(512).nullable(),
  launches: z
    .array(
      z.object({
        launch: count,
        dir: absolute,
        purpose: z.enum(['search', 'run']),
        config: config.nullable(),
      }),
    )
    .max(100_000),
  journal: z.array(observation).max(100_000),
  submitted_at: time,
  started_at: time.nullable(),
  ended_at: time.nullable(),
  exit_code: z.number().int().nullable(),
  pause: z.enum(['on', 'off']).nullish(),
});

/** What is wrong with it, in one line: `options.gpus: expected a number`. */
export function complaint(error: z.ZodError): string {
  const issue = error.issues[0];
  return issue === undefined ? 'it cannot be read' : `${issue.path.join('.') || 'record'}: ${issue.message}`;
}
