import { z } from 'zod';
import { absolute, argument, count, jobId, text, word } from './fields.js';

/** Optimizer steps of a probe, at most. */
export const MOST_PROBE_STEPS = 1000;

export const objective = z.enum(['max-batch', 'throughput']);
export type Objective = z.infer<typeof objective>;

/** `auto`: at the loader where a framework accumulates by itself, else at the model. */
const cutWish = z.enum(['auto', 'model', 'loader']);

/** Options of find-batch, run and submit after parsing; validated again when read back from Redis. */
export const jobOptions = z.object({
  name: text(256).nullable(),
  /** `cpu`, `cuda`, `cuda:N`; null: the first GPU, else cpu. */
  device: z
    .string()
    .regex(/^(cpu|cuda|cuda:\d{1,3})$/, 'cpu, cuda or cuda:N')
    .nullable(),
  /** As written (`24GiB`, `80%`); resolved on the host that runs it. */
  budget: text(64).nullable(),
  gpus: z.number().int().min(1).max(1024),
  /** Whole devices, whatever the budget. */
  exclusive: z.boolean().default(false),
  effectiveBatch: count.nullable(),
  minBatch: count,
  maxBatch: count.nullable(),
  amp: z.enum(['auto', 'off', 'bf16', 'fp16']),
  checkpointing: z.enum(['auto', 'off', 'on']),
  accumulation: z.enum(['auto', 'off']),
  /** Where batches are cut into micro-batches; absent: auto. */
  cut: cutWish.optional(),
  exact: z.boolean(),
  objective,
  headroomPct: z.number().min(0).max(90),
  preset: word,
  steps: z.number().int().min(2).max(MOST_PROBE_STEPS),
  timeoutSeconds: z.number().positive().nullable(),
  maxLaunches: count.nullable(),
  /** Names only: values stay on the host that submitted. */
  env: z.array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'a name without a value')).max(10_000),
  envFile: absolute.nullable(),
  cwd: absolute,
  /** `run --no-tune`. */
  tune: z.boolean(),
  /** submit only. */
  priority: z.number().int().min(-1_000_000).max(1_000_000),
  after: z.array(jobId).max(1000),
  share: z.boolean(),
  gpuModel: word.nullable(),
  host: word.nullable(),
  resumeArg: argument.nullable(),
  retries: z.number().int().min(0).max(1000),
  /** `run` only: starts again from the beginning after an out-of-memory error, however much was done. */
  restart: z.boolean().optional(),
});
export type JobOptions = z.infer<typeof jobOptions>;
