import { OomtuneError } from '../common/errors.js';
import type { Store } from '../store/index.js';
import type { JobRecord } from '../store/types.js';

/** The records of the jobs that were named, in that order; `@` is the latest. Throws OOMTUNE_NO_SUCH_JOB for the first that is not there. */
export async function namedJobs(store: Store, names: string[]): Promise<JobRecord[]> {
  return Promise.all(names.map((name) => namedJob(store, name)));
}

export async function namedJob(store: Store, name: string): Promise<JobRecord> {
  const job = name === '@' ? await store.jobs.latest() : await store.jobs.get(name);
  if (job !== null) return job;
  throw new OomtuneError(
    'OOMTUNE_NO_SUCH_JOB',
    name === '@' ? 'No job has been submitted yet.' : `There is no job "${name}".`,
    'See `oomtune status` for the jobs that there are.',
  );
}
