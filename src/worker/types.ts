import type { Log } from '../common/log.js';
import type { JobRecord } from '../contract/job.js';
import type { KnobValue } from '../contract/knob.js';
import type { Device } from '../contract/launch.js';
import type { Observation, Probe, ProbeRecord } from '../contract/measurement.js';
import type { JobOptions } from '../contract/options.js';
import type { Recommendation } from '../contract/recommendation.js';
import type { FindBatchReport } from '../contract/reports.js';
import type { Config, Rung } from '../contract/rung.js';
import type { Shell } from '../contract/shell.js';
import type { StandardInput } from '../runtime/standard-input.js';
import type { JobSignal, Runtime } from '../runtime/types.js';
import type { HeldLease } from '../store/held-lease.js';
import type { RecommendationStore } from '../store/index.js';
import type { LeaseRequest } from '../store/lease-request.js';

/** A search for the largest value of `{name}` in the command. */
export interface KnobWish {
  name: string;
  /** Null: 1, but a larger one is tried first. */
  min: number | null;
  max: number | null;
  /** Null: round numbers. */
  multipleOf: number | null;
}

/** One command to be searched or run. */
export interface WorkRequest {
  jobId: string;
  command: string[];
  options: JobOptions;
  purpose: 'find-batch' | 'run' | 'submit';
  /** After a crash: the tuner's observations, and the launches that were begun. */
  journal: Observation[];
  launches: JobRecord['launches'];
  /** The number of this try of the job, from 1. Absent: the first. */
  epoch?: number;
  /** The job's output also goes to this process's stdout and stderr. */
  foreground: boolean;
  /** What the launches read on their stdin; absent: nothing. */
  input?: StandardInput;
  /** When its first launch was made; null, absent: not yet. */
  startedAt?: string | null;
  /** The base of the job's environment, before allow-list and `--env`. */
  environment: NodeJS.ProcessEnv;
  /** Its umask and limits; absent: those of whoever starts it. */
  shell?: Shell;
  /** `find-batch --knob`; absent: the batch is searched. */
  knob?: KnobWish;
  /** Recorded values that stand in the command. */
  knobs?: KnobValue[];
}

/** Reserves device memory for the time of the work. */
export type Leasing = { acquire(request: LeaseRequest): Promise<Lease> };

export type Lease = Pick<HeldLease, 'devices' | 'foreign' | 'beside' | 'attach' | 'resize' | 'release' | 'leave'>;

export type WorkRecommendations = Pick<RecommendationStore, 'get' | 'put' | 'demote'>;

/** What the worker keeps in Redis. A refusal is waited out, as no job should end for it. */
export interface Records {
  recommendations: WorkRecommendations;
  /** For what is tried again by itself: a refusal may be thrown at once. Absent: none is. */
  atOnce?: WorkRecommendations;
  leasing: Leasing;
}

export interface WorkDeps {
  runtime: Runtime;
  /** Opened while other things are waited for. */
  records: () => Promise<Records>;
  signal: AbortSignal;
  /** The most that a new launch may take; absent: no limit. */
  secondsLeft?: () => number;
  /** Has `hear` told of signals that are the job's while it runs; returns what ends that. Absent: none come. */
  onSignal?: (hear: (name: JobSignal) => void) => () => void;
  progress: (event: Progress) => void;
  /** Writes into the job's record before a step is taken; a no-op for foreground verbs. */
  persist: (patch: Partial<JobRecord>) => Promise<void>;
  log: Log;
}

/** Progress to show to a person or log. */
export type Progress =
  | { type: 'waiting'; reason: string }
  | { type: 'device'; device: Device; budgetBytes: number }
  | { type: 'interpreter'; path: string; torch: string | null }
  | { type: 'launch'; launch: number; rung: (Rung & { expandable_segments?: boolean }) | null; why: string }
  | { type: 'life'; launch: number; life: number; why: string }
  | { type: 'probing'; probe: Probe; launch: number }
  | { type: 'probe'; observation: Observation; record: ProbeRecord }
  | { type: 'found'; report: FindBatchReport }
  | { type: 'reused'; recommendation: Recommendation }
  /** `watched`: what it takes is still to be recorded. */
  | { type: 'running'; config: Config | null; launch: number; logFile: string; watched: boolean }
  /** The job that runs as it stands has lasted, and is recorded; null: its batch cannot be told, so that nothing is. */
  | { type: 'lasts'; config: Config | null; record: ProbeRecord | null }
  /** Optimizer steps of the run so far. */
  | { type: 'step'; step: number }
  /** The last lines of a launch that did not write to the terminal. */
  | { type: 'said'; lines: readonly string[] }
  | { type: 'note'; text: string };
