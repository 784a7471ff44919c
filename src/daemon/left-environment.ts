import { ENDED_STATES } from '../contract/job.js';
import type { Store, StoredJob } from '../store/index.js';
import type { Hands } from './hands.js';

interface LeftEnvironmentParts {
  store: Store;
  host: string;
  handsFor: (job: StoredJob) => Hands | null;
}

/** Removes the environment of a job that ended without being run here: nobody else on the host that keeps it hears of that end. */
export async function forgetLeftEnvironment(
  id: string,
  { store, host, handsFor }: LeftEnvironmentParts,
): Promise<void> {
  const found = await store.jobs.find(id);
  if (found.is !== 'job') return;
  const { job } = found;
  if (!ENDED_STATES.includes(job.state) || job.options.notify) return; // who tells of the end removes it
  if (job.environment?.host === host && job.environment.file) handsFor(job)?.environmentOf(job).forget();
}
