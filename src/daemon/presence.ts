import { known } from './steer.js';

/** Redis may have lost its data: what runs is written back within 30 seconds. */
const BACK_MS = 35_000;

/** Tells a job that Redis has lost for good from one that its host is about to write back. */
export class Presence {
  readonly #seen = new Set<string>();
  /** Since when each is missing that was there (ms). */
  readonly #gone = new Map<string, number>();

  /** `seen`: jobs that were there a moment ago. */
  constructor(seen: string[] = []) {
    for (const id of seen) this.#seen.add(id);
  }

  /** Whether it is there. Throws OOMTUNE_NO_SUCH_JOB for one that never was, or that stays away. */
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
