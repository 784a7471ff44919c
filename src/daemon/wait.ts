import { ENDED_STATES, outlast, type Store } from '../store/index.js';
import type { JobRecord } from '../store/types.js';
import { known } from './steer.js';

/** Ends are announced; this is for the announcement that got lost on its way all the same. */
const LOOK_MS = 30_000;
/** Redis may have lost its data: what runs is written back within 30 seconds. */
const BACK_MS = 35_000;
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
  const seen = new Set<string>();
  /** Since when each is missing that was there (ms). */
  const gone = new Map<string, number>();
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
        if (job === null) {
          if (Date.now() - (gone.get(id) ?? Date.now()) > BACK_MS || !seen.has(id)) known(id, 'missing');
          gone.set(id, gone.get(id) ?? Date.now());
          lookMs = BACK_LOOK_MS;
          continue;
        }
        seen.add(id);
        gone.delete(id);
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
