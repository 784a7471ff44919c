import { setTimeout as delay } from 'node:timers/promises';
import { OomtuneError, usageError } from '../common/errors.js';
import { ownUser } from '../common/user.js';
import { ENDED_STATES, type JobRecord, type JobState, type SubmittedEnvironment } from '../contract/job.js';
import type { JobOptions } from '../contract/options.js';
import { noSuchJob, type Store, type StoredJob } from '../store/index.js';
import { jobEnvironment } from '../worker/command/environment.js';
import { checkLimits, isAdmin } from './limits.js';
import { forgetEnvironment, forgetUnsent, isAnswerLost, saveEnvironment } from './saved-environment.js';
import { cancelInSlurm, isSlurms, refuseSteering, retryInSlurm } from './slurm/steer.js';

const HELD_MS = 5000;

/** Ends a job for good, from any host. Returns the state it found, or `cancelled` if done at once. Throws OOMTUNE_NO_SUCH_JOB. */
export async function cancelJob(store: Store, id: string): Promise<JobState> {
  const job = await store.jobs.get(id);
  if (isSlurms(job) && !ENDED_STATES.includes(job.state)) return cancelInSlurm(store, job);
  const found = known(id, await store.jobs.cancel(id));
  if (found === 'cancelled') {
    if (!job?.options.notify) forgetEnvironment(id, job?.environment); // else who tells of the end does it
    await freeOfLostHost(store, job);
  }
  return found;
}

/** Keeps a queued job from starting until it is released. Throws OOMTUNE_USAGE for one that has started or ended. */
export async function holdJob(store: Store, id: string): Promise<JobState> {
  await refuseSlurms(store, id, 'hold');
  const state = known(id, await store.jobs.hold(id));
  if (state === 'held') return state;
  const instead = ENDED_STATES.includes(state) ? '' : `; \`oomtune cancel ${id}\` ends it`;
  throw usageError(`${id} cannot be held: it is ${state}.`, `Only queued jobs can be held${instead}.`);
}

/** Has a running job stand still, or go on. Throws OOMTUNE_USAGE for one that does not run. Returns what its host says of it. */
export async function pauseJob(store: Store, id: string, pause: 'on' | 'off'): Promise<string> {
  await refuseSlurms(store, id, pause === 'on' ? 'suspend' : 'resume');
  const state = known(id, await store.jobs.pause(id, pause));
  if (state !== 'ok') {
    throw usageError(
      `${id} cannot be ${pause === 'on' ? 'paused' : 'resumed'}: it is ${state}.`,
      state === 'queued' ? `\`oomtune hold ${id}\` keeps it from starting.` : 'Only running jobs can be paused.',
    );
  }
  const until = Date.now() + HELD_MS;
  while (Date.now() < until) {
    const job = await store.jobs.get(id);
    if (job === null || ENDED_STATES.includes(job.state)) return `had ended: ${job?.state ?? 'forgotten'}`;
    if ((job.reason?.startsWith('paused') ?? false) === (pause === 'on')) return pause === 'on' ? 'paused' : 'goes on';
    await delay(100);
  }
  return `is to ${pause === 'on' ? 'stand still' : 'go on'}; its host has not answered yet`;
}

/** Changes what a job that has not started asks for. `admin`: a priority counts across users then. Throws OOMTUNE_USAGE for one that has started or ended. */
export async function editJob(
  store: Store,
  id: string,
  changes: Pick<Partial<JobOptions>, 'priority' | 'timeSeconds'>,
  admin = isAdmin(ownUser()),
): Promise<void> {
  await refuseSlurms(store, id, 'update');
  const across = changes.priority === undefined ? {} : { acrossUsers: admin && changes.priority !== 0 };
  const state = known(id, await store.jobs.edit(id, { ...changes, ...across }));
  if (state === 'ok') return;
  throw usageError(
    `${id} cannot be edited: it is ${state}.`,
    ENDED_STATES.includes(state)
      ? `\`oomtune retry ${id}\` runs it again.`
      : 'Only jobs that have not started can be edited.',
  );
}

/** Lets a held job go on. Throws OOMTUNE_USAGE for one that has ended; one that was never held goes on as it does. */
export async function releaseJob(store: Store, id: string): Promise<JobState> {
  await refuseSlurms(store, id, 'release');
  const state = known(id, await store.jobs.release(id));
  if (!ENDED_STATES.includes(state)) return state;
  throw usageError(`${id} cannot be released: it is ${state}.`, `\`oomtune retry ${id}\` runs it again.`);
}

/**
 * Runs an ended job, or one of a lost host, again under its id. `environment` null: the retrier has none, so the allow-list is
 * used. Throws OOMTUNE_USAGE if it has not ended, OOMTUNE_STILL_RUNNING while a process of it cannot be ended.
 */
export async function retryJob(
  store: Store,
  id: string,
  environment: NodeJS.ProcessEnv | null = null,
): Promise<JobRecord> {
  const before = await store.jobs.get(id);
  if (before === null) return known(id, 'missing') as never;
  if (isSlurms(before) && ENDED_STATES.includes(before.state)) {
    await retryInSlurm(store, before, environment ?? process.env);
    return (await store.jobs.get(id)) ?? before;
  }
  if (ENDED_STATES.includes(before.state)) await refuseWhileHeld(store, id);
  const { options } = before;
  if (ENDED_STATES.includes(before.state)) await checkLimits(store, before.owner, options, 1);
  const given =
    environment === null
      ? emptied(before.environment)
      : saveEnvironment(
          store,
          id,
          jobEnvironment({ ...options, envFile: null }, environment),
          environment.OOMTUNE_NOTIFY,
        );
  const found = await store.jobs.retry(id, given).catch((error: unknown) => {
    forgetUnsent(error, id, given);
    throw isAnswerLost(error) ? mayBeQueued(id, error) : error;
  });
  if (found !== 'queued') forgetEnvironment(id, given);
  else await freeOfLostHost(store, before);
  if (known(id, found) === 'queued') return { ...before, state: 'queued' }; // to read it again might fail, though it is queued
  throw usageError(`${id} has not ended: it is ${found}.`, `\`oomtune cancel ${id}\` ends it.`);
}

function mayBeQueued(id: string, error: OomtuneError): OomtuneError {
  const remedy = `\`oomtune status ${id}\` tells once it answers: retry it again only if it has not been. ${error.remedy}`;
  return new OomtuneError(error.code, `${error.message} ${id} may be queued again.`, remedy, { cause: error });
}

/** A lease that outlives its job stands for a process that nothing could end: a new launch would promise its memory twice. */
async function refuseWhileHeld(store: Store, id: string): Promise<void> {
  const until = Date.now() + HELD_MS;
  while (await store.leasing.heldByEnded(id)) {
    if (Date.now() > until) {
      throw new OomtuneError(
        'OOMTUNE_STILL_RUNNING',
        `A process of ${id} was killed and is still there, with its memory.`,
        'Look at the file system or GPU that does not answer, then retry it.',
      );
    }
    await delay(200);
  }
}

/** What was launched, and steered without its host, was on a host that is lost: so is the memory that it had there. */
async function freeOfLostHost(store: Store, job: StoredJob | null): Promise<void> {
  if (job?.claimHost != null && job.launches.length > 0) await store.leasing.forgetHost(job.claimHost, job.job);
}

/** Throws OOMTUNE_USAGE for a job in Slurm's queue, with the command that does it there. */
async function refuseSlurms(store: Store, id: string, verb: Parameters<typeof refuseSteering>[1]): Promise<void> {
  const job = await store.jobs.get(id);
  if (isSlurms(job) && !ENDED_STATES.includes(job.state)) refuseSteering(job, verb);
}

const emptied = (was: SubmittedEnvironment | null | undefined): SubmittedEnvironment | null =>
  was == null ? null : { ...was, file: null, withheld: [] };

/** Throws OOMTUNE_NO_SUCH_JOB. */
export function known<S extends string>(id: string, state: S | 'missing'): S {
  if (state === 'missing') throw noSuchJob(`There is no job "${id}".`);
  return state as S;
}
