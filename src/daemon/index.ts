/** What a command line needs of the scheduler. Only `runDaemon` loads BullMQ and the native runtime, so that `submit` starts fast. */
import type { Store } from '../store/index.js';
import type { RunOptions } from './run.js';

export { deadEndOf } from './dead-end.js';
export { forgetHost } from './forget.js';
export { dashboardAddress } from './http/token.js';
export { daemonStatus, ownDaemonRuns, type StartOptions, startDaemon, stopDaemon } from './lifecycle.js';

export type { DaemonSettings } from './settings.js';
export { lives, silenceAbout, withSilence } from './silence.js';
export { followSlurm } from './slurm/follow.js';
export { slurmHasGpus } from './slurm/programs.js';
export { submitToSlurm } from './slurm/submit.js';
export { cancelJob, editJob, holdJob, pauseJob, releaseJob, retryJob } from './steer.js';
export { submitJob, submitSweep, sweepName } from './submit.js';
export type { SystemSettings } from './system/index.js';
export { userShares } from './user-shares.js';

/** See runDaemonHere. */
export async function runDaemon(store: Store, options: RunOptions): Promise<void> {
  const { runDaemonHere } = await import('./run.js');
  await runDaemonHere(store, options);
}
export { asItRan } from './slurm/record.js';
export { waitForJobs } from './wait.js';
