import type { Log } from '../common/log.js';
import type { JobRecord } from '../contract/job.js';
import type { Device, LedgerReading } from '../contract/launch.js';
import type { Observation, Probe, ProbeRecord } from '../contract/measurement.js';
import type { JobOptions } from '../contract/options.js';
import type { Recommendation } from '../contract/recommendation.js';
import type { FindBatchReport } from '../contract/reports.js';
import type { Config, Rung } from '../contract/rung.js';
import type { Runtime } from '../runtime/types.js';

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
  | { type: 'life'; launch: number; life: number; why: string }
  | { type: 'probing'; probe: Probe; launch: number }
  | { type: 'probe'; observation: Observation; record: ProbeRecord }
  | { type: 'found'; report: FindBatchReport }
  | { type: 'reused'; recommendation: Recommendation }
  | { type: 'running'; config: Config | null; launch: number; logFile: string }
  | { type: 'ledger'; reading: LedgerReading }
  | { type: 'note'; text: string };
