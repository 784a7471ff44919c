import { OomtuneError } from '../common/errors.js';
import { ENDED_STATES, type Store } from '../store/index.js';
import type { JobRecord, JobState } from '../store/types.js';

/**
 * Has a job end, whatever its state, from any host; it never runs again. Ended jobs stay as they are. Returns the state
 * that it found, or `cancelled` where that was done at once. Throws OOMTUNE_NO_SUCH_JOB.
 */
export async function cancelJob(store: Store, id: string): Promise<JobState> {
  return known(id, await store.jobs.cancel(id));
}

/** Keeps a queued job from starting until it is released. Throws OOMTUNE_USAGE for one that has started or ended. */
export async function holdJob(store: Store, id: string): Promise<JobState> {
  const state = known(id, await store.jobs.hold(id));
  if (state === 'held') return state;
  throw new OomtuneError(
    'OOMTUNE_USAGE',
    `${id} cannot be held: it is ${state}.`,
    ENDED_STATES.includes(state)
      ? 'Only queued jobs can be held.'
      : `Only queued jobs can be held; \`oomtune cancel ${id}\` ends it.`,
  );
}

/** Lets a held job go on. Throws OOMTUNE_USAGE for one that has ended; one that was never held goes on as it does. */
export async function releaseJob(store: Store, id: string): Promise<JobState> {
  const state = known(id, await store.jobs.release(id));
  if (!ENDED_STATES.includes(state)) return state;
  throw new OomtuneError(
    'OOMTUNE_USAGE',
    `${id} cannot be released: it is ${state}.`,
    `\`oomtune retry ${id}\` runs it again.`,
  );
}

/** Runs an ended job again, under the same id, from the start. Throws OOMTUNE_USAGE for one that has not ended. */
export async function retryJob(store: Store, id: string): Promise<JobRecord> {
  const found = known(id, await store.jobs.retry(id));
  const job = await store.jobs.get(id);
  if (job === null) return known(id, 'missing') as never;
  if (found === 'queued') return job;
  throw new OomtuneError('OOMTUNE_USAGE', `${id} has not ended: it is ${found}.`, `\`oomtune cancel ${id}\` ends it.`);
}

/** Waits until all have ended; woken by events, and looking each second in case one was lost. */
export async function waitForJobs(store: Store, ids: string[], signal: AbortSignal): Promise<JobRecord[]> {
  let wake: () => void = () => {};
  const unlisten = await store.events.listen((what, job) => what === 'ended' && ids.includes(job) && wake());
  try {
    for (;;) {
      signal.throwIfAborted();
      const heard = new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 1000);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
        signal.addEventListener('abort', wake, { once: true });
      });
      const jobs: JobRecord[] = [];
      for (const id of ids) {
        const job = await store.jobs.get(id);
        if (job === null) known(id, 'missing');
        else jobs.push(job);
      }
      if (jobs.every((job) => ENDED_STATES.includes(job.state))) {
        wake();
        return jobs;
      }
      await heard;
      signal.removeEventListener('abort', wake);
    }
  } finally {
    unlisten();
  }
}

function known<S extends string>(id: string, state: S | 'missing'): S {
  if (state !== 'missing') return state as S;
  throw new OomtuneError(
    'OOMTUNE_NO_SUCH_JOB',
    `There is no job "${id}".`,
    'See `oomtune status` for the jobs that there are.',
  );
}
