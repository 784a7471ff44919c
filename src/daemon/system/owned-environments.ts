import { readJson } from '../../contract/fields.js';
import { jobRecord } from '../../contract/job.js';
import type { Reply, Store } from '../../store/index.js';

/** Jobs that may be asked for at once. */
export const MOST_ASKED = 10_000;

/** The file that each job's environment is needed from, as one user may know it: another's job is none of theirs. */
export async function ownedEnvironments(
  { jobs }: Pick<Store, 'jobs'>,
  uid: number,
  ids: string[],
): Promise<Reply<string | null>[]> {
  const owners = await jobs.fields(ids, ['uid']);
  const needed = await jobs.environments(ids);
  return needed.map((one, at) => (one.is === 'value' && owners[at]?.[0] !== String(uid) ? { is: 'missing' } : one));
}

/** More than a daemon keeps. */
const MOST_JOBS = 20_000;
/** A sweep leaves files alone that are newer, and there is none so soon after another. */
const SETTLED_MS = 60_000;

/** Users whose agents are to sweep the environments of ended jobs: nobody else hears of the end of a job that did not run, and that may go unheard. */
export class DueSweeps {
  readonly #swept = new Map<number, number>();

  constructor(private readonly store: Pick<Store, 'jobs' | 'notify'>) {}

  /** Those with jobs that ended since their last sweep, or that were told of since. */
  async users(): Promise<number[]> {
    const { jobs, notify } = this.store;
    const ids = await jobs.latestIds({ live: MOST_JOBS, ended: MOST_JOBS });
    const owed = await notify.owed();
    const due = new Set<number>();
    for (const [at, values] of (await jobs.fields(ids, ['uid', 'ended_at'])).entries()) {
      const uid = readJson(jobRecord.shape.uid, values?.[0]);
      const ended = readJson(jobRecord.shape.ended_at, values?.[1]);
      if (uid == null || ended === null) continue;
      const swept = this.#swept.get(uid) ?? 0;
      if (Date.now() - swept < SETTLED_MS) continue;
      if (Date.parse(ended) > swept - 2 * SETTLED_MS || owed.has(ids[at] as string)) due.add(uid);
    }
    return [...due];
  }

  swept(uid: number): void {
    this.#swept.set(uid, Date.now());
  }
}
