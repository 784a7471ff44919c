import type { JobRecord } from '../contract/job.js';
import type { ForegroundEntry } from '../contract/verbs.js';
import type { Store } from '../store/index.js';
import { type JobFilter, listedForeground, listedJob } from './job-filter.js';
import { namedJobs } from './jobs.js';
import { foregroundEntries } from './status-entry.js';
import { hasEnded } from './status-view.js';

/** Of how many ended jobs the wanted ones are looked for. */
const MOST_ENDED = 10_000;

export interface Listing {
  read(): Promise<{ jobs: JobRecord[]; foreground: ForegroundEntry[] }>;
  unreadable(): ReturnType<Store['jobs']['unreadable']>;
}

/** The jobs to show, read anew at each call: those named, else all that have not ended and the latest `limit` that have. */
export async function createListing(
  store: Store,
  wish: { names: string[]; filter: JobFilter; limit: number; note: (text: string) => void },
): Promise<Listing> {
  const { names, filter, limit } = wish;
  const { followSlurm, withSilence } = await import('../daemon/index.js');
  const said = new Set<string>(); // a picture that is drawn anew each second says which job it means only once
  const once = { note: (text: string) => void (said.size === said.add(text).size || wish.note(text)) };
  const all = names.length === 0;
  const ended = filter.liveOnly ? 0 : filter.narrows ? MOST_ENDED : limit;
  return {
    async read() {
      await followSlurm(store);
      const found = await withSilence(
        store,
        all ? await store.jobs.list({ ended }) : await namedJobs(store, names, once),
      );
      const kept = found.filter((job) => filter.keeps(listedJob(job)));
      const jobs = all ? latest(kept, limit) : kept;
      const beside = all ? await foregroundEntries(store) : [];
      const foreground = beside.filter((entry) => filter.keeps(listedForeground(entry)));
      const { order } = filter;
      if (order !== null) {
        jobs.sort((a, b) => order(listedJob(a), listedJob(b)));
        foreground.sort((a, b) => order(listedForeground(a), listedForeground(b)));
      }
      return { jobs, foreground };
    },
    async unreadable() {
      return all && !filter.narrows ? store.jobs.unreadable() : [];
    },
  };
}

/** All that have not ended and the last `limit` that have; jobs come in the order submitted. */
function latest<Job extends Pick<JobRecord, 'state' | 'ended_at'>>(jobs: Job[], limit: number): Job[] {
  const gone = jobs.filter(hasEnded);
  const left = new Set(gone.slice(0, Math.max(0, gone.length - limit)));
  return jobs.filter((job) => !left.has(job));
}
