import { setTimeout as delay } from 'node:timers/promises';
import { OomtuneError } from '../common/errors.js';
import type { Store } from '../store/index.js';
import type { JobRecord } from '../store/types.js';
import { namedJobs } from './jobs.js';
import type { Verb } from './program.js';
import { hasEnded, statusEntry } from './status-view.js';

/** A job that runs is given time to end by itself before it is killed: `cancel` waits for that, but not for ever. */
const CANCEL_SECONDS = 30;

type Steering = (store: Store, job: JobRecord, signal: AbortSignal) => Promise<string>;

/** The same thing to each of the jobs that were named. All names are looked up before anything is done. */
function steer(act: Steering): Verb {
  return async ({ args }, context) => {
    const { out, signal } = context;
    const store = await context.store();
    const jobs = await namedJobs(store, args);
    const said = await Promise.all(jobs.map((job) => act(store, job, signal)));
    signal.throwIfAborted();
    if (!out.json) for (const [at, job] of jobs.entries()) out.note(`${job.job}  ${said[at]}`);
    else {
      const after = await namedJobs(
        store,
        jobs.map((job) => job.job),
      );
      out.document({ schema: 1, jobs: after.map(statusEntry) });
    }
    return 0;
  };
}

export const hold = steer(async (store, { job }) => {
  const state = await store.jobs.hold(job);
  if (state === 'held') return 'held';
  throw cannot(job, state, 'held', 'Only a job that waits can be held; `oomtune cancel` ends one that runs.');
});

export const release = steer(async (store, { job }) => {
  const state = await store.jobs.release(job);
  if (state === 'queued') return 'queued';
  throw cannot(job, state, 'released', 'Only a held job can be released.');
});

/** Cancelling what has ended is no error: it is as it was wished. */
export const cancel = steer(async (store, record, signal) => {
  const { job } = record;
  const state = await store.jobs.cancel(job);
  if (state === 'cancelled') return 'cancelled';
  const deadline = Date.now() + CANCEL_SECONDS * 1000;
  for (let wait = 50; Date.now() < deadline && !signal.aborted; wait = Math.min(wait * 2, 500)) {
    const now = await store.jobs.get(job);
    if (now === null || hasEnded(now))
      return now === null || now.state === 'cancelled' ? 'cancelled' : `had ended: ${now.state}`;
    await delay(wait, undefined, { signal }).catch(() => {});
  }
  return `is to be cancelled; ${(await store.jobs.get(job))?.reason ?? 'its host has not answered yet'}`;
});

export function cannot(job: string, state: string, done: string, remedy: string): OomtuneError {
  if (state === 'missing') {
    return new OomtuneError(
      'OOMTUNE_NO_SUCH_JOB',
      `There is no job "${job}".`,
      'See `oomtune status` for the jobs that there are.',
    );
  }
  return new OomtuneError('OOMTUNE_USAGE', `${job} cannot be ${done}: it is ${state}.`, remedy);
}
