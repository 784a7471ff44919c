import type { Retention } from './retention.js';

/** How a daemon behaves. Times in milliseconds. */
export const DAEMON_SETTINGS = {
  /** Jobs at a time with `--device cpu`. */
  cpuLanes: 1,
  /** Jobs at a time on each GPU: more than one only ever share it (`--share`). */
  gpuLanes: 4,
  /** TCP beyond loopback without password and TLS: whoever reaches that Redis runs commands here. */
  allowInsecureRedis: false,
  /** Where the dashboard is served; null: the first free port of ten from 8421 on; 0: nowhere. */
  httpPort: null as number | null,
  /** An address of this machine; beyond loopback nothing is encrypted. */
  httpHost: '127.0.0.1',
  /** `/metrics` without the dashboard's token. */
  metricsOpen: false,
  /** BullMQ's lock. With 30 s an outage of Redis of 45 s made a running job look abandoned, and started it a second time. */
  lockMs: 600_000,
  renewMs: 60_000,
  heartbeatMs: 5000,
  /** How often everything is looked over, in case a wake was lost. */
  sweepMs: 10_000,
  /** How often cancellation is looked for, in case its wake was lost. */
  cancelLookMs: 2000,
  /** A job that waits for a lease this long goes back to its queue if another host could take it. */
  putBackMs: 10_000,
  /** How long a stop waits for jobs to be let go of, beyond their own grace. */
  stopMs: 15_000,
  /** How long a stop that ends the jobs waits for them: their grace, and what a supervisor that does not answer gets. */
  killMs: 60_000,
  /** Bytes that are kept free at oomtune's home: with less no job is taken. */
  roomBytes: 64 * 1024 ** 2,
  /** Ended jobs that are remembered. */
  keptJobs: 10_000,
  /** What stays on the disk of ended jobs; null: what config/retention.yaml says. */
  keptRuns: null as Retention | null,
  /** How often that is looked at. */
  tidyMs: 600_000,
};
export type DaemonSettings = typeof DAEMON_SETTINGS;
