import type { Anatomy } from '../tuner/index.js';
import type { Config, FailureClass, Observation } from '../tuner/types.js';

/** `{oomtune}:config:<key>` as the contract has it; all values are strings in Redis. */
export interface Recommendation {
  schema: 1;
  key: string;
  name: string;
  gpu_model: string;
  budget_bytes: number;
  world_size: number;
  micro_batch: number;
  accumulation: number;
  effective_batch: number;
  amp: 'off' | 'bf16' | 'fp16';
  checkpointing: boolean;
  max_micro_batch: number;
  known_bad_micro_batch: number | null;
  peak_bytes: number | null;
  samples_per_s: number | null;
  /** ISO 8601. */
  verified_at: string;
  status: 'verified' | 'demoted';
  command_digest: string;
  torch: string | null;
  driver: string | null;
  /** What the command asks for by itself, so that a later run can keep it; null: not known. */
  own_batch?: number | null;
  own_accumulation?: number | null;
  /** Where the hook cut the batches that were measured; null: it cut none. */
  cut?: CutPlace | null;
  /** The commands that it is known to hold for, to the letter, the latest last. Absent: recorded by an earlier version. */
  commands?: VerifiedCommand[];
  /** Saved activations are kept in host memory. */
  offload?: boolean;
  /** It was measured with an allocator whose segments can grow, and is run so. */
  expandable_segments?: boolean;
  /** What fills the memory at this configuration; null: its peak could not be measured. */
  memory?: Anatomy | null;
  /** With objective throughput: the speeds that decided on the rung. */
  comparison?: SpeedComparison | null;
  probes: ProbeRecord[];
}

/** Speeds that decided between rungs, in the ladder's order. */
export interface SpeedComparison {
  /** In one process, in turns; false: each in a launch of its own. */
  together: boolean;
  speeds: {
    amp: 'off' | 'bf16' | 'fp16';
    checkpointing: boolean;
    offload?: boolean;
    micro_batch: number;
    /** On all devices: median, and half of the range over the rounds (null: there was one). */
    samples_per_s: number;
    spread: number | null;
    rounds: number;
  }[];
}

export interface VerifiedCommand {
  /** SHA-256 (hex) of its words. */
  digest: string;
  /** What it asks for by itself; null: not known. */
  own_batch: number | null;
  own_accumulation: number | null;
  /** Samples of its data set; null: not known. */
  own_samples?: number | null;
}

/** One probe as `find-batch --json` and the `probes` field show it. */
export interface ProbeRecord {
  launch: number;
  micro_batch: number;
  amp: 'off' | 'bf16' | 'fp16';
  checkpointing: boolean;
  /** Present and true only on the offload rung. */
  offload?: boolean;
  /** Present and true where the allocator's segments could grow. */
  expandable_segments?: boolean;
  steps: number;
  outcome: 'fit' | FailureClass;
  peak_bytes: number | null;
  step_s: number | null;
  /** Samples trained a second, on all devices together. Absent: recorded by an earlier version. */
  samples_per_s?: number | null;
  /** Seconds that it took in all, the start of its process left out. */
  wall_s?: number;
  evidence: string | null;
  /** Why this size was tried then. */
  why?: string;
}

export type JobState =
  | 'queued'
  | 'held'
  | 'searching'
  | 'running'
  | 'succeeded'
  | 'failed'
  | 'cancelled'
  | 'exhausted'
  | 'timeout';

/** Options of find-batch, run and submit after parsing; validated again when read back from Redis. */
/** Where a batch is cut into micro-batches: where the model is called, or at the DataLoader. */
export type CutPlace = 'model' | 'loader';
/** `auto`: at the loader where a framework accumulates by itself, else at the model. */
export type CutWish = CutPlace | 'auto';

/** How a run's batches were cut, and why so. */
export interface Cut {
  cut: CutPlace;
  why: string;
}

export interface JobOptions {
  name: string | null;
  /** `cpu`, `cuda`, `cuda:N`; null: the first GPU, else cpu. */
  device: string | null;
  /** As written (`24GiB`, `80%`); resolved on the host that runs it. */
  budget: string | null;
  gpus: number;
  /** Whole devices, whatever the budget. */
  exclusive: boolean;
  effectiveBatch: number | null;
  minBatch: number;
  maxBatch: number | null;
  amp: 'auto' | 'off' | 'bf16' | 'fp16';
  checkpointing: 'auto' | 'off' | 'on';
  accumulation: 'auto' | 'off';
  /** Where batches are cut into micro-batches; absent: auto. */
  cut?: CutWish;
  exact: boolean;
  objective: 'max-batch' | 'throughput';
  headroomPct: number;
  preset: string;
  steps: number;
  timeoutSeconds: number | null;
  /** `--time`: from the first launch to the end; absent: as long as it takes. */
  timeSeconds?: number | null;
  maxLaunches: number | null;
  /** `NAME=VALUE` or `NAME` (taken from the submitter's environment when launched on its host). Values are never written to Redis. */
  env: string[];
  envFile: string | null;
  cwd: string;
  /** `run --no-tune`. */
  tune: boolean;
  /** submit only. */
  priority: number;
  after: string[];
  /** Jobs that have to have ended, however. */
  afterAny?: string[] | undefined;
  /** Absent: it was submitted alone. */
  sweep?: SweepMember | undefined;
  share: boolean;
  gpuModel: string | null;
  host: string | null;
  resumeArg: string | null;
  retries: number;
  /** `run` only: starts again from the beginning after an out-of-memory error, however much was done. */
  restart?: boolean;
}

/** A job's place among those that were submitted with it by `--array` or `--sweep`: one command, one recommendation. */
export interface SweepMember {
  /** The same for all. */
  sweep: string;
  /** Its number among them, from 0. */
  member: number;
  /** How many may run at a time; null: all. */
  atOnce: number | null;
  /** Of `--array`; null: there is none. */
  index: number | null;
}

/** What the record of a job knows of its submitter's environment: never a value. */
export interface SubmittedEnvironment {
  /** Where it is kept until the job ends. */
  host: string;
  /** Names its file; null: it was retried by somebody who had none to give. */
  file: string | null;
  /** Names that a host other than this one would do without. */
  bound: string[];
  /** Those that the job did do without where it was launched. */
  withheld: string[];
}

/** One job as it is kept in Redis (`{oomtune}:job:<id>`), the truth that every verb reads. */
export interface JobRecord {
  schema: 1;
  job: string;
  name: string;
  state: JobState;
  /** Why it waits or where it stands, for a person; null when there is nothing to say. */
  reason: string | null;
  failure: { class: FailureClass; evidence: string | null; fields: Record<string, number | string | null> } | null;
  command: string[];
  options: JobOptions;
  environment?: SubmittedEnvironment | null;
  host: string | null;
  devices: string[];
  config: Config | null;
  /** Where the run's batches are cut into micro-batches; null or absent: they are not. */
  cut?: Cut | null;
  /** Key of the recommendation that it uses or made. */
  key: string | null;
  /** Launch folders in order, on `host`. Written before the launch. */
  launches: { launch: number; dir: string; purpose: 'search' | 'run'; config: Config | null }[];
  /** What the tuner was told, in order: replayed after a crash. */
  journal: Observation[];
  submitted_at: string;
  started_at: string | null;
  ended_at: string | null;
  exit_code: number | null;
  /** Whether its processes are to stand still (`pause`, `resume`); null or absent: it was never asked. */
  pause?: 'on' | 'off' | null;
}

export type OomtuneEvent =
  | { type: 'job'; job: string; key: string | null; state: JobState; reason: string | null }
  | { type: 'probe'; job: string; key: string | null; probe: ProbeRecord }
  | { type: 'config'; key: string; job: string | null; status: 'verified' | 'demoted' }
  | { type: 'lease'; job: string; key: null; device: string; owner: string; bytes: number; action: 'taken' | 'freed' };
