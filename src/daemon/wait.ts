import { ENDED_STATES, type JobRecord } from '../contract/job.js';
import { outlast, type Store } from '../store/index.js';
import { Presence } from './presence.js';

/** Ends are announced; this is for the announcement that got lost on its way all the same. */
const LOOK_MS = 30_000;
/** For one that may be about to be written back. */
const BACK_LOOK_MS = 1000;

/**
 * Waits until all have ended, and tells of each when it has. A job is read when its end is announced, and all are when the
 * connection was lost meanwhile. Throws OOMTUNE_NO_SUCH_JOB, for one that was there as soon as it stays away; or the signal's reason.
 */
export async function waitForJobs(
  store: Store,
  ids: string[],
  signal: AbortSignal,
  onEnd: (job: JobRecord) => void = () => {},
): Promise<JobRecord[]> {
  const ended = new Map<string, JobRecord>();
  const left = () => ids.filter((id) => !ended.has(id));
  const due = new Set(ids);
  const presence = new Presence();
  let wake: () => void = () => {};
  const unlisten = await store.events.listen((what, job) => {
    if (what === 'back') for (const id of left()) due.add(id);
    else if (what === 'ended' && ids.includes(job)) due.add(job);
    else return;
    wake();
  });
  try {
    for (;;) {
      signal.throwIfAborted();
      const look = [...due];
      due.clear();
      let lookMs = LOOK_MS;
      for (const id of look.filter((one) => !ended.has(one))) {
        const job = await outlast(() => store.jobs.get(id), { signal, onRefused: store.connection.onRefused });
        if (!presence.note(id, job)) {
          lookMs = BACK_LOOK_MS;
          continue;
        }
        if (!ENDED_STATES.includes(job.state)) continue;
        ended.set(id, job);
        onEnd(job);
      }
      if (left().length === 0) return ids.map((id) => ended.get(id) as JobRecord);
      if (due.size > 0) continue; // announced while we looked
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => {
          for (const id of left()) due.add(id);
          wake();
        }, lookMs);
        wake = () => {
          clearTimeout(timer);
          signal.removeEventListener('abort', wake);
          resolve();
        };
        signal.addEventListener('abort', wake, { once: true });
      });
    }
  } finally {
    unlisten();
  }
}
