import { Alarm } from '../common/within.js';
import { ENDED_STATES, type JobRecord } from '../contract/job.js';
import { patient, type Store } from '../store/index.js';
import { withSilence } from './silence.js';
import { followSlurm } from './slurm/follow.js';
import { known } from './steer.js';

/** Redis may have lost its data: what runs is written back within 30 seconds. */
const BACK_MS = 35_000;

/** Tells a job that Redis has lost for good from one that its host is about to write back. */
export class Presence {
  readonly #seen = new Set<string>();
  /** Since when each known job is missing (ms). */
  readonly #gone = new Map<string, number>();

  /** `seen`: jobs that existed a moment ago. */
  constructor(seen: string[] = []) {
    for (const id of seen) this.#seen.add(id);
  }

  /** Whether it exists. Throws OOMTUNE_NO_SUCH_JOB for one that never did, or that stays missing. */
  note<T>(id: string, job: T | null): job is T {
    if (job !== null) {
      this.#seen.add(id);
      this.#gone.delete(id);
      return true;
    }
    const since = this.#gone.get(id) ?? Date.now();
    if (!this.#seen.has(id) || Date.now() - since > BACK_MS) known(id, 'missing');
    this.#gone.set(id, since);
    return false;
  }
}

/** Ends are announced; this is for the announcement that got lost on its way all the same. */
const LOOK_MS = 30_000;
/** Slurm announces nothing. */
const SLURM_LOOK_MS = 2000;
/** For one that may be about to be written back. */
const BACK_LOOK_MS = 1000;

/** Waits until all have ended, and calls back for each, and with each reason for which one has not, when it is seen. Throws OOMTUNE_NO_SUCH_JOB, or the signal's reason. */
export async function waitForJobs(
  impatient: Store,
  ids: string[],
  signal: AbortSignal,
  onEnd: (job: JobRecord) => void = () => {},
  onReason: (job: JobRecord) => void = () => {},
): Promise<JobRecord[]> {
  const store = patient(impatient, signal);
  const ended = new Map<string, JobRecord>();
  const reasons = new Map<string, string | null>();
  const left = () => ids.filter((id) => !ended.has(id));
  const due = new Set(ids);
  const presence = new Presence();
  const alarm = new Alarm();
  const unlisten = await store.events.listen((what, job) => {
    if (what === 'back') for (const id of left()) due.add(id);
    else if (what === 'ended' && ids.includes(job)) due.add(job);
    else return;
    alarm.ring();
  });
  try {
    for (;;) {
      signal.throwIfAborted();
      const inSlurm = await store.jobs.inSlurm();
      if (inSlurm) await followSlurm(store);
      const look = [...due];
      due.clear();
      let lookMs = inSlurm ? SLURM_LOOK_MS : LOOK_MS;
      for (const id of look.filter((one) => !ended.has(one))) {
        const job = await store.jobs.get(id);
        if (!presence.note(id, job)) {
          lookMs = BACK_LOOK_MS;
          continue;
        }
        if (!ENDED_STATES.includes(job.state)) {
          const [now = job] = await withSilence(store, [job]);
          if (now.reason !== null && reasons.get(id) !== now.reason) onReason(now);
          reasons.set(id, now.reason);
          continue;
        }
        ended.set(id, job);
        onEnd(job);
      }
      if (left().length === 0) return ids.map((id) => ended.get(id) as JobRecord);
      if (due.size > 0) continue; // announced while we looked
      await alarm.sleep(lookMs, signal);
      if (due.size === 0) for (const id of left()) due.add(id);
    }
  } finally {
    unlisten();
  }
}
