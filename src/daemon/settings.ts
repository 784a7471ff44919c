import type { Retention } from './retention.js';

/** How a daemon behaves. Times in milliseconds. */
export interface DaemonSettings {
  /** Jobs at a time with `--device cpu`. */
  cpuLanes: number;
  /** Jobs at a time on each GPU: more than one only ever share it (`--share`). */
  gpuLanes: number;
  /** TCP beyond loopback without password and TLS: whoever reaches that Redis runs commands here. */
  allowInsecureRedis: boolean;
  /** Where the dashboard is served; null: the first free port of ten from 8421 on; 0: nowhere. */
  httpPort: number | null;
  /** An address of this machine; beyond loopback nothing is encrypted. */
  httpHost: string;
  /** `/metrics` without the dashboard's token. */
  metricsOpen: boolean;
  /**
   * BullMQ's lock. Long, as an outage of Redis must not make a running job look abandoned: with 30 s a pause of 45 s
   * started it a second time.
   */
  lockMs: number;
  renewMs: number;
  heartbeatMs: number;
  /** How often everything is looked over, in case a wake was lost. */
  sweepMs: number;
  /** How often cancellation is looked for, in case its wake was lost. */
  cancelLookMs: number;
  /** A job that waits for a lease this long goes back to its queue if another host could take it. */
  putBackMs: number;
  /** How long a stop waits for jobs to be let go of, beyond their own grace. */
  stopMs: number;
  /** How long a stop that ends the jobs waits for them: their grace, and what a supervisor that does not answer gets. */
  killMs: number;
  /** Bytes that are kept free at oomtune's home: with less no job is taken. */
  roomBytes: number;
  /** Ended jobs that are remembered. */
  keptJobs: number;
  /** What stays on the disk of ended jobs; null: what config/retention.yaml says. */
  keptRuns: Retention | null;
  /** How often that is looked at. */
  tidyMs: number;
}

export const DAEMON_SETTINGS: DaemonSettings = {
  cpuLanes: 1,
  gpuLanes: 4,
  allowInsecureRedis: false,
  httpPort: null,
  httpHost: '127.0.0.1',
  metricsOpen: false,
  lockMs: 600_000,
  renewMs: 60_000,
  heartbeatMs: 5000,
  sweepMs: 10_000,
  cancelLookMs: 2000,
  putBackMs: 10_000,
  stopMs: 15_000,
  killMs: 60_000,
  roomBytes: 64 * 1024 ** 2,
  keptJobs: 10_000,
  keptRuns: null,
  tidyMs: 600_000,
};
