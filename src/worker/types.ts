import type { Log } from '../common/log.js';
import type { Device, LedgerReading, Runtime } from '../runtime/types.js';
import type { Cut, JobOptions, JobRecord, ProbeRecord, Recommendation, SpeedComparison } from '../store/types.js';
import type { Anatomy } from '../tuner/index.js';
import type { Config, FailureClass, Observation, Probe, Rung } from '../tuner/types.js';

/** One command to be searched or run. */
export interface WorkRequest {
  jobId: string;
  command: string[];
  options: JobOptions;
  purpose: 'find-batch' | 'run' | 'submit';
  /** After a crash: what the tuner had been told, and the launches that were begun. */
  journal: Observation[];
  launches: JobRecord['launches'];
  /** Which try of the job this is, from 1. Absent: the first. */
  epoch?: number;
  /** `run` in the foreground: the job's output also goes to this process's stdout and stderr. */
  foreground: boolean;
  /** When its first launch was made; null, absent: none was yet. */
  startedAt?: string | null;
  /** The environment that the job may take from (the allow-list and `--env` are applied to it). */
  environment: Record<string, string | undefined>;
}

/** What the worker needs from the store; src/store implements it. */
export interface Recommendations {
  get(key: string): Promise<Recommendation | null>;
  put(recommendation: Recommendation, job: string | null): Promise<void>;
  demote(key: string, knownBad: number, job: string | null): Promise<void>;
}

/** Reserves device memory for the time of the work; src/store/leases implements it. */
export interface Leasing {
  /**
   * Waits until every named device (or any `count` of the suitable ones) can be reserved at once. bytes null: whole devices.
   * `onWait` is told why it waits. Rejects with the signal's reason.
   */
  acquire(request: {
    owner: string;
    devices: Device[];
    count: number;
    bytes: number | null;
    share: boolean;
    /** Who waits with a higher one goes first. */
    priority: number;
    /** Waits for leases only: what strangers hold it does without. */
    lenient: boolean;
    /** With `bytes` null: what must be free of the memory of strangers. Absent: nine tenths of the device. */
    needBytes?: number | null;
    /** How long it will hold them at most, in seconds; null, absent: not known. */
    lastsSeconds?: number | null;
    /** The command that works in front of its terminal; null: a job does. */
    foreground?: { verb: string; name: string } | null;
    /** The devices as they are now: asked while waiting. */
    refresh?: () => Promise<Device[]>;
    signal: AbortSignal;
    onWait: (reason: string) => void;
  }): Promise<Lease>;
}

export interface Lease {
  devices: Device[];
  /** Bytes of each device that strangers held when it was granted. */
  foreign: number[];
  /** Jobs that have shared a device with this one at some time so far. */
  beside(): Promise<string[]>;
  /** Tells whose life the lease stands for: if the owner dies, it is freed only when this supervisor is gone too. */
  attach(run: { supervisorPid: number; dir: string }): Promise<void>;
  /** Changes the reserved bytes (whole device while searching, predicted peak after). */
  resize(bytes: number | null): Promise<void>;
  release(): Promise<void>;
  /** Lets go of it, but it stays until these processes of the launch in `dir`, which nothing can end, are gone. */
  leave(dir: string, pids: number[]): Promise<void>;
}

/** What the worker keeps in Redis. */
export interface Records {
  recommendations: Recommendations;
  leasing: Leasing;
}

export interface WorkDeps {
  runtime: Runtime;
  /** Opened while other things are waited for. */
  records: () => Promise<Records>;
  signal: AbortSignal;
  /** How long a launch that is made now may take at most; absent: as long as it takes. */
  secondsLeft?: () => number;
  progress: (event: Progress) => void;
  /** Writes into the job's record before a step is taken; a no-op for foreground verbs. */
  persist: (patch: Partial<JobRecord>) => Promise<void>;
  log: Log;
}

/** What a person or a log is shown while work goes on. */
export type Progress =
  | { type: 'waiting'; reason: string }
  | { type: 'device'; device: Device; budgetBytes: number }
  | { type: 'interpreter'; path: string; torch: string | null; note: string | null }
  | { type: 'launch'; launch: number; rung: (Rung & { expandable_segments?: boolean }) | null; why: string }
  | { type: 'probing'; probe: Probe; launch: number }
  | { type: 'probe'; observation: Observation; record: ProbeRecord }
  | { type: 'found'; report: FindBatchReport }
  | { type: 'reused'; recommendation: Recommendation }
  | { type: 'running'; config: Config | null; launch: number; logFile: string }
  | { type: 'ledger'; reading: LedgerReading }
  | { type: 'note'; text: string };

/** diagnose's document. */
export interface Diagnosis {
  class: FailureClass | 'ok';
  certain: boolean;
  evidence: string | null;
  line: number | null;
  fields: {
    tried_bytes: number | null;
    total_bytes: number | null;
    free_bytes: number | null;
    allocated_bytes: number | null;
    reserved_bytes: number | null;
    gpu: number | null;
  };
  phase: 'train' | 'load' | 'eval' | 'save' | 'unknown';
  cause: string;
  advice: string;
  /** The text can mean something else: to be tried once smaller before it is believed. */
  ambiguous?: boolean;
  /** What would help. `none`: no smaller batch will (a leak, the model itself, a neighbour). */
  cure?: 'smaller' | 'expandable_segments' | 'wait' | 'none';
  /** Why there was too little device memory, where that can be told; each calls for another remedy. */
  reason?: MemoryReason | null;
  /** The signature that matched, from config/signatures.yaml. */
  signature?: string | null;
  /** The rank (or pod, pid) whose failure came first; null where the log names none. */
  rank?: string | null;
  memory?: MemoryPicture | null;
  /** Numbers of the lines with device OOMs that the job got over. */
  soft_ooms?: number[];
}

/**
 * `batch`: nothing else is to blame. `asked`: one request larger than the device. `data`: the data set lives on it.
 * `after`: the training loop had ended.
 * `limit`: refused below the device's size, by the framework's own limit or by something that is not told.
 */
export type MemoryReason =
  | 'batch'
  | 'neighbour'
  | 'data'
  | 'limit'
  | 'fragmentation'
  | 'leak'
  | 'load'
  | 'eval'
  | 'save'
  | 'after'
  | 'asked';

/** Who held the device's memory when it ran out, in bytes; null: not said. */
export interface MemoryPicture {
  total_bytes: number | null;
  /** Held by the process that failed, contexts included. */
  process_bytes: number | null;
  others_bytes: number | null;
  free_bytes: number | null;
  asked_bytes: number | null;
  /** Held by the process's allocator, but by no tensor. */
  unallocated_bytes: number | null;
  /** The others, by name where known. */
  neighbours: { pid: number; name: string | null; bytes: number }[];
}

/** `find-batch --json`, as the contract has it. */
export interface FindBatchReport {
  schema: 1;
  key: string;
  name: string;
  status: 'found' | 'exhausted' | 'failed';
  failure?: {
    class: FailureClass;
    evidence: string | null;
    fields: Record<string, number | string | null>;
    advice?: string;
    /** `leak`: memory grows with every step, so no size is recommended. */
    reason?: 'leak';
  };
  /** `room_bytes`: what strangers left of the budget, where they did not leave all of it. */
  device: { id: string; model: string; total_bytes: number; budget_bytes: number; room_bytes?: number };
  config: Config | null;
  /** What the command asks for by itself, and how many samples there are; null: no batch of its own was seen. */
  own: { micro_batch: number; accumulation: number; effective_batch: number; samples: number | null } | null;
  max_micro_batch: number | null;
  peak_bytes: number | null;
  headroom_pct: number | null;
  samples_per_s: number | null;
  verified_steps: number | null;
  /** With objective throughput: the speeds that decided on the rung; absent: there was one rung only. */
  comparison?: SpeedComparison;
  launches: number;
  startup_s: number | null;
  wall_s: number;
  probes: ProbeRecord[];
  /** `own`: runs it at the effective batch that it asks for by itself; absent where there is none, or another was asked for. */
  apply: { argv: string[]; env: Record<string, string>; oomtune: string[]; own?: string[] } | null;
  /** What fills the device's memory at `config`; null: nothing was found, or its peak could not be measured. */
  memory: MemoryReport | null;
  notes: string[];
}

/** The peak of `config` taken apart, and the curve of peak against micro-batch on its rung. Bytes. */
export interface MemoryReport extends Anatomy {
  curve: {
    /** What fitted, ascending; a size measured more than once counts as it was last. */
    fits: { micro_batch: number; peak_bytes: number }[];
    /** Sizes that ran out of memory, ascending: what they would have needed is not known. */
    out_of_memory: number[];
    /** The prediction: peak = base_bytes + bytes_per_sample x micro-batch; null: too few sizes were measured. */
    prediction: { base_bytes: number; bytes_per_sample: number } | null;
  };
}

/** What a run came to: `run --report FILE` writes it, submitted jobs keep it in their record. */
export interface RunReport {
  schema: 1;
  job: string;
  exit_code: number | null;
  signal: string | null;
  /** Why there was no run at all. */
  outcome: 'succeeded' | 'failed' | 'cancelled' | 'exhausted' | 'timeout';
  config: Config | null;
  /** Where its batches were cut into micro-batches; null: they were not. */
  cut: Cut | null;
  key: string | null;
  devices: {
    device: string;
    peak_bytes: number;
    budget_bytes: number | null;
    /** Whose figures told contexts and modules: each `process`'s, or (as in a container) the whole `device`'s; null: no GPU. */
    measured_by: 'process' | 'device' | null;
  }[];
  refused: number;
  refusals: LedgerReading['refusals'];
  blind: boolean;
  /** The most that any one process of the job had in memory, whatever it used it for; null: not known. */
  resident_bytes: number | null;
  failure: Diagnosis | null;
  launches: number;
  wall_s: number;
  /** Which process of it was killed and is still there, as the kernel holds on to it; absent: nothing of it is left. */
  still_running?: string;
}
