import { z } from 'zod';
import { DEVICE_CHOICE } from './device-id.js';
import { absolute, argument, count, hostLabels, jobId, jobTags, text, word } from './fields.js';
import { ALLOWANCES, type Allowance } from './rung.js';

/** The most optimizer steps of a probe. */
export const MOST_PROBE_STEPS = 1000;

const objective = z.enum(['max-batch', 'throughput']);
export type Objective = z.infer<typeof objective>;

/** `auto`: at the loader where a framework accumulates by itself, else at the model. */
const cutWish = z.enum(['auto', 'model', 'loader']);

/** What `--allow` takes. */
export const ALLOWANCE_NAMES = Object.keys(ALLOWANCES) as [Allowance, ...Allowance[]];

const jobIds = z.array(jobId).max(1000);

/** A job's place in its `--array` or `--sweep`: one command, one recommendation. */
const sweepMember = z.object({
  /** The same for all. */
  sweep: z.string().regex(/^s-[a-z0-9]{4,32}$/),
  /** Its number among them, from 0. */
  member: z.number().int().min(0).max(1_000_000),
  /** How many may run at a time; null: all. */
  atOnce: count.nullable(),
  /** Of `--array`; null: there is none. */
  index: z.number().int().min(0).max(1_000_000_000).nullable(),
});
export type SweepMember = z.infer<typeof sweepMember>;

/** Options of find-batch, run and submit after parsing; validated again when read back from Redis. */
export const jobOptions = z.object({
  name: text(256).nullable(),
  /** `cpu`, `cuda`, `cuda:N`; null: the first GPU, else cpu. */
  device: z.string().regex(DEVICE_CHOICE).nullable(),
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
  /** The loss of a language model in chunks, where that is needed; absent: auto. */
  chunkedLoss: z.enum(['auto', 'off']).optional(),
  /** Knobs that change numerics and are turned on only by request; absent: none. */
  allow: z.array(z.enum(ALLOWANCE_NAMES)).optional(),
  accumulation: z.enum(['auto', 'off']),
  /** Where batches are cut into micro-batches; absent: auto. */
  cut: cutWish.optional(),
  /** Micro-batches are counted in tokens: as many as fit, or at most so many; absent: in samples. */
  microBatchTokens: z.literal('auto').or(count).optional(),
  exact: z.boolean(),
  objective,
  headroomPct: z.number().min(0).max(90),
  preset: word,
  steps: z.number().int().min(2).max(MOST_PROBE_STEPS),
  /** Whether fresh processes of a search may be forks of one start; absent: they may. */
  fork: z.boolean().optional(),
  /** Peaks of evaluation, generation and saving are seen in a rehearsal, before the job runs; absent: they are not. */
  probeEval: z.boolean().optional(),
  timeoutSeconds: z.number().positive().nullable(),
  /** `--time`: from the first launch to the end; absent: as long as it takes. */
  timeSeconds: z.number().positive().nullish(),
  maxLaunches: count.nullable(),
  /** Names only: values stay on the host that submitted. */
  env: z.array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'a name without a value')).max(10_000),
  envFile: absolute.nullable(),
  cwd: absolute,
  /** `run --no-tune`. */
  tune: z.boolean(),
  /** submit only. */
  priority: z.number().int().min(-1_000_000).max(1_000_000),
  /** An admin gave the priority: it counts before any user's usage. */
  acrossUsers: z.boolean().optional(),
  after: jobIds,
  /** Jobs that have to have ended, however. */
  afterAny: jobIds.optional(),
  /** Absent: it was submitted alone. */
  sweep: sweepMember.optional(),
  share: z.boolean(),
  /** `--share auto`: beside another such job only where both get more done than taking turns; absent: false. */
  shareAuto: z.boolean().optional(),
  gpuModel: word.nullable(),
  host: word.nullable(),
  /** Labels that its host has to have; absent: none. */
  labels: hostLabels.optional(),
  /** Somebody is to be told of it. Whom, stands with its environment; absent: nobody. */
  notify: z.boolean().optional(),
  /** The submitter's own words to find it by; absent: none. */
  tags: jobTags.optional(),
  resumeArg: argument.nullable(),
  retries: z.number().int().min(0).max(1000),
  /** `run` only: starts again from the beginning after an out-of-memory error, however much was done. */
  restart: z.boolean().optional(),
  /** `run` only: what cannot be started again in place is left to a scheduler, by the exit code of OOMTUNE_SMALLER_NEXT. */
  requeue: z.boolean().optional(),
});
export type JobOptions = z.infer<typeof jobOptions>;

/** Of a submitter who asked for nothing, in no folder yet. */
export const DEFAULT_OPTIONS = {
  name: null,
  device: null,
  budget: null,
  gpus: 1,
  exclusive: false,
  effectiveBatch: null,
  minBatch: 1,
  maxBatch: null,
  amp: 'auto',
  checkpointing: 'auto',
  accumulation: 'auto',
  exact: false,
  objective: 'max-batch',
  headroomPct: 3,
  preset: 'auto',
  steps: 3,
  timeoutSeconds: null,
  maxLaunches: null,
  env: [],
  envFile: null,
  tune: true,
  priority: 0,
  after: [],
  share: false,
  gpuModel: null,
  host: null,
  resumeArg: null,
  retries: 2,
} satisfies Omit<JobOptions, 'cwd'>;

/** What a record keeps of `--env`: names, and no values. */
export const envNames = (entries: string[]): string[] => [
  ...new Set(entries.map((entry) => entry.split('=', 1)[0] as string)),
];
