import { remedyOf, replyInWords } from '../common/refusal.js';
import type { JobRecord } from '../contract/job.js';
import { isForHost, isInQueue, NO_DAEMON, takesNoWrites } from '../contract/waiting.js';
import { hostName, type KnownHost, LOST_MS, type Store, type StoredJob } from '../store/index.js';
import { wasKilled } from './daemon-file.js';

/** What is told of a job whose host is silent; null: it is heard, or the job is nobody's. `now`: ms. */
export function silenceOf(
  job: Pick<StoredJob, 'job' | 'host' | 'ended_at'> & Partial<Pick<StoredJob, 'cancelAsked'>>,
  hosts: KnownHost[],
  now = Date.now(),
): string | null {
  const known = job.ended_at === null ? hosts.find(({ host }) => host === job.host) : undefined;
  if (known === undefined || lives(known)) return null;
  const since = new Date(known.seen).toISOString();
  const here = known.host === hostName();
  if (job.cancelAsked != null && (here || now - known.seen < LOST_MS)) {
    const helps = here ? 'once `oomtune daemon start` has started its daemon' : 'when it is back';
    return `cancelled by the user; ${known.host} has not been heard since ${since}, and ends it ${helps}`;
  }
  if (here)
    return `${known.host} has not been heard since ${since}; \`oomtune daemon start\` looks after the job again, which may still run`;
  if (now - known.seen < LOST_MS)
    return `${known.host} has not been heard since ${since}; the job may still run there and goes on when it is back`;
  return `${known.host} is lost: it has not been heard since ${since}. If it is down for good: \`oomtune retry ${job.job}\` runs the job elsewhere, \`oomtune cancel ${job.job}\` ends it, \`oomtune daemon forget ${known.host}\` gives up all that it had`;
}

/** The same of a job by its id, as it stands now. */
export async function silenceAbout(store: Store, id: string): Promise<string | null> {
  const job = await store.jobs.get(id);
  return job === null || job.slurm != null ? null : silenceOf(job, await store.hosts.list());
}

/** Whether its daemon takes jobs, as far as is known here: one that was killed is heard in Redis for a while. */
export const lives = ({ host, alive, info }: KnownHost): boolean =>
  alive && !(host === hostName() && info !== null && wasKilled(host, info.pid));

/** As much of a job as tells how it stands. */
type Standing = Pick<JobRecord, 'job' | 'host' | 'state' | 'reason' | 'ended_at'> &
  Partial<Pick<StoredJob, 'slurm' | 'cancelAsked'>>;

/** The jobs as they stand for whoever asks now: nobody else can write that their host is silent, that no daemon is left, or that Redis takes no writes. */
export async function withSilence<J extends Standing>(store: Store, jobs: J[]): Promise<J[]> {
  if (!jobs.some((job) => job.ended_at === null)) return jobs;
  const hosts = await store.hosts.list();
  const nobody = !hosts.some(lives);
  const refused = await store.refusalOfWrites();
  const stuck = refused === null ? null : takesNoWrites(replyInWords(refused), remedyOf(refused, store.url) ?? '');
  return jobs.map((job) => {
    if (job.slurm != null) return job;
    const left = nobody && job.state === 'queued' && (isInQueue(job.reason) || isForHost(job.reason));
    const silence = silenceOf(job, hosts);
    if (stuck !== null && (job.state === 'queued' || silence !== null)) return { ...job, reason: stuck };
    return { ...job, reason: silence ?? (left ? NO_DAEMON : job.reason) };
  });
}
