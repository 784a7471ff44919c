/**
 * The scheduler, and what a command line needs to talk to it. Nothing here loads BullMQ or the native runtime before
 * `runDaemon` is called, so that `submit` and `status` start fast.
 *
 * - `submitJob(store, { command, options, environment })` → the job's record
 * - `cancelJob`, `holdJob`, `releaseJob`, `retryJob` `(store, id)`; `waitForJobs(store, ids, signal)`
 * - `forgetHost(store, host)`: gives up a host that is down for good
 * - `startDaemon(store, { cpuLanes, allowInsecureRedis })`, `stopDaemon(store, { kill })`, `daemonStatus(store)`
 * - `dashboardAddress()`: of this host's daemon, with the token
 * - `runDaemon(store, { signal, cpuLanes, allowInsecureRedis })`: in this process, until the signal is aborted
 */
import type { Store } from '../store/index.js';
import type { RunOptions } from './run.js';

export { forgetHost } from './forget.js';
export { dashboardAddress } from './http/token.js';
export { daemonStatus, type StartOptions, startDaemon, stopDaemon } from './lifecycle.js';

export type { DaemonSettings } from './settings.js';
export { withSilence } from './silence.js';
export { cancelJob, editJob, holdJob, pauseJob, releaseJob, retryJob } from './steer.js';
export { submitJob, submitSweep } from './submit.js';

/** See runDaemonHere. */
export async function runDaemon(store: Store, options: RunOptions): Promise<void> {
  const { runDaemonHere } = await import('./run.js');
  await runDaemonHere(store, options);
}
export { waitForJobs } from './wait.js';
