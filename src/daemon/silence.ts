import type { JobRecord } from '../contract/job.js';
import { type KnownHost, LOST_MS, type Store } from '../store/index.js';

/** What is told of a job whose host is silent; null: it is heard, or the job is nobody's. `now`: ms. */
export function silenceOf(
  job: Pick<JobRecord, 'job' | 'host' | 'ended_at'>,
  hosts: KnownHost[],
  now = Date.now(),
): string | null {
  const known = job.ended_at === null ? hosts.find(({ host }) => host === job.host) : undefined;
  if (known === undefined || known.alive) return null;
  const since = new Date(known.seen).toISOString();
  if (now - known.seen < LOST_MS)
    return `${known.host} has not been heard since ${since}; the job may still run there and goes on when it is back`;
  return `${known.host} is lost: it has not been heard since ${since}. If it is down for good: \`oomtune retry ${job.job}\` runs the job elsewhere, \`oomtune cancel ${job.job}\` ends it, \`oomtune daemon forget ${known.host}\` gives up all that it had`;
}

/** The jobs as they stand for whoever asks now: nobody else may be there to write that their host is silent. */
export async function withSilence<J extends JobRecord>(store: Store, jobs: J[]): Promise<J[]> {
  if (!jobs.some((job) => job.host !== null && job.ended_at === null)) return jobs;
  const hosts = await store.hosts.list();
  return jobs.map((job) => (job.slurm == null ? { ...job, reason: silenceOf(job, hosts) ?? job.reason } : job));
}
