import { formatSpan } from '../../common/span.js';
import { TimeUp, within } from '../../common/within.js';
import type { JobRecord } from '../../contract/job.js';
import type { Store } from '../../store/index.js';
import { toChanges } from '../job-options.js';
import { namedJobs } from '../jobs.js';
import { statusEntries } from '../status-entry.js';
import type { Verb } from '../verb.js';

/** How long `cancel` waits for a running job to end. */
const CANCEL_SECONDS = 30;

type Steering = (store: Store, job: JobRecord, signal: AbortSignal) => Promise<string>;

/** Turns a verb's options into its action. */
type Understanding = (options: Record<string, unknown>) => Steering;

/** Does the same to each named job, after all names were looked up. */
const steer = (act: Steering): Verb => steerBy(() => act);

function steerBy(understand: Understanding): Verb {
  return async ({ args, options }, context) => {
    const { out, signal } = context;
    const act = understand(options);
    const store = await context.store();
    const jobs = await namedJobs(store, args, out);
    const said = await Promise.all(jobs.map((job) => act(store, job, signal)));
    signal.throwIfAborted();
    if (!out.json) for (const [at, job] of jobs.entries()) out.note(`${job.job}  ${said[at]}`);
    else {
      const ids = jobs.map((job) => job.job);
      const after = await namedJobs(store, ids, out);
      out.document('cancel', { schema: 1, jobs: await statusEntries(store, after) });
    }
    return 0;
  };
}

const daemon = () => import('../../daemon/index.js');

/** Cancelling an ended job is no error. One whose daemon is known to be gone is not waited for. */
export const cancel = steer(async (store, { job }, signal) => {
  const { cancelJob, silenceAbout, waitForJobs } = await daemon();
  const found = await cancelJob(store, job);
  if (found === 'cancelled') return 'cancelled';
  const silent = await silenceAbout(store, job);
  if (silent !== null) return `is to be cancelled; ${silent}`;
  const ended = await within(CANCEL_SECONDS * 1000, signal, (limited) => waitForJobs(store, [job], limited)).catch(
    (error: unknown) => {
      if (error instanceof TimeUp) return [];
      throw error;
    },
  );
  for (const { state } of ended) return state === 'cancelled' ? 'cancelled' : `had ended: ${state}`;
  const why = (await silenceAbout(store, job)) ?? (await store.jobs.get(job))?.reason;
  return `is to be cancelled; ${why ?? 'its host has not answered yet'}`;
});

export const hold = steer(async (store, { job }) => (await daemon()).holdJob(store, job));

export const edit = steerBy((options) => {
  const changes = toChanges(options);
  const { priority, timeSeconds } = changes;
  const said = [
    priority === undefined ? '' : `priority ${priority}`,
    timeSeconds === undefined ? '' : `time limit ${timeSeconds === null ? 'none' : formatSpan(timeSeconds)}`,
  ].filter(Boolean);
  return async (store, { job }) => {
    await (await daemon()).editJob(store, job, changes);
    return said.join(', ');
  };
});

export const release = steer(async (store, { job }) => (await daemon()).releaseJob(store, job));

export const pause = steer(async (store, { job }) => (await daemon()).pauseJob(store, job, 'on'));

export const resume = steer(async (store, { job }) => (await daemon()).pauseJob(store, job, 'off'));
