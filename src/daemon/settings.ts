import type { Retention } from './retention.js';

/** How a daemon behaves. Times in milliseconds. */
export const DAEMON_SETTINGS = {
  /** Jobs at a time with `--device cpu`. */
  cpuLanes: 1,
  /** Jobs at a time on each GPU: more than one only ever share it (`--share`). */
  gpuLanes: 4,
  /** How often jobs of `--share auto` are looked at, and how long each part of their measurement lasts at least. */
  pairLookMs: 500,
  pairWindowMs: 4000,
  /** Allows TCP beyond loopback without password and TLS: whoever reaches that Redis runs commands here. */
  allowInsecureRedis: false,
  /** The dashboard's port; null: the first free one of ten from 8421 on; 0: no dashboard. */
  httpPort: null as number | null,
  /** Beyond loopback nothing is encrypted. */
  httpHost: '127.0.0.1',
  /** `/metrics` without the dashboard's token. */
  metricsOpen: false,
  /** BullMQ's lock. With 30 s an outage of Redis of 45 s made a running job look abandoned, and started it a second time. */
  lockMs: 600_000,
  renewMs: 60_000,
  /** A queue that has held nothing for so long is closed and removed, until a job comes for it again. */
  emptyQueueMs: 60_000,
  heartbeatMs: 5000,
  /** Between two full looks, in case a wake was lost. */
  sweepMs: 10_000,
  /** Between two looks at what Slurm says of its jobs. */
  slurmLookMs: 10_000,
  /** Between two looks for cancellations, in case a wake was lost. */
  cancelLookMs: 2000,
  /** Between two looks for what somebody is to be told of, in case a wake was lost. */
  notifyLookMs: 10_000,
  /** A job that is queued for longer waits for long; null: as OOMTUNE_NOTIFY_WAIT_SECONDS says. */
  notifyWaitMs: null as number | null,
  /** A job that waits this long for a lease goes back to its queue if another host could take it. */
  putBackMs: 10_000,
  /** The most that a stop waits for jobs to be let go, beyond their own grace. */
  stopMs: 15_000,
  /** The most that `stop --kill` waits for the jobs' ends: their grace, and that of their supervisors. */
  killMs: 60_000,
  /** What its administrator says of this host, for `submit --label`. */
  labels: [] as string[],
  /** With less free space at oomtune's home no job is taken. */
  roomBytes: 64 * 1024 ** 2,
  keptJobs: 10_000,
  /** What is kept on disk of ended jobs; null: as in config/retention.yaml. */
  keptRuns: null as Retention | null,
  tidyMs: 600_000,
};
export type DaemonSettings = typeof DAEMON_SETTINGS;
