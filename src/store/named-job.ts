import { OomtuneError } from '../common/errors.js';
import { answersTo, namePattern, nearest, stemOfName } from '../common/names.js';
import type { JobLabel, JobReader } from './job-reader.js';
import type { StoredJob } from './job-record.js';

export interface NamedJob {
  job: StoredJob;
  /** How many jobs have the name; 1 where an id was written. */
  namesakes: number;
}

/** The job of `@` (the latest), an id or its unique beginning, or a name (its latest job). Throws OOMTUNE_NO_SUCH_JOB. */
export async function namedJob(jobs: JobReader, handle: string): Promise<NamedJob> {
  if (handle === '@') {
    const latest = await jobs.latest();
    if (latest !== null) return { job: latest, namesakes: 1 };
    throw noSuchJob('No job has been submitted yet.');
  }
  const exact = await jobs.get(handle);
  if (exact !== null) return { job: exact, namesakes: 1 };
  const labels = await jobs.labels();
  const ids = labels.map(({ job }) => job).filter((id) => handle.length >= 5 && id.startsWith(handle));
  const [only] = ids;
  const named = only !== undefined && ids.length === 1 ? [only] : withName(labels, handle);
  for (const id of named) {
    if (ids.length === 1) {
      const job = await jobs.get(id);
      if (job !== null) return { job, namesakes: 1 };
      continue;
    }
    const found = await jobs.find(id); // where it cannot be used the one before it answers to the name
    if (found.is === 'job') return { job: found.job, namesakes: named.length };
  }
  if (ids.length > 1) {
    throw new OomtuneError(
      'OOMTUNE_NO_SUCH_JOB',
      `More than one job begins with ${handle}: ${ids.sort().slice(0, 5).join(', ')}.`,
      'Write more of the id.',
    );
  }
  throw noSuchJob(
    `There is no job "${handle}".`,
    nearest(
      handle,
      labels.flatMap((label) => [...names(label).flatMap(withStem), label.job]),
    ),
  );
}

/** All jobs with a name like the pattern (`sweep-*`, `sweep-?`), in order of submission. Throws OOMTUNE_NO_SUCH_JOB. */
export async function jobsLike(jobs: JobReader, pattern: string): Promise<StoredJob[]> {
  const fits = namePattern(pattern);
  const ids = (await jobs.labels()).filter(({ name }) => typeof name === 'string' && fits.test(name));
  const found = await Promise.all(ids.reverse().map(({ job }) => jobs.find(job)));
  const fitting = found.flatMap((one) => (one.is === 'job' ? [one.job] : []));
  if (fitting.length === 0) throw noSuchJob(`There is no job whose name fits "${pattern}".`);
  return fitting;
}

/** Ids of the jobs of this name, the latest first; exact names come before those with a digest. */
function withName(labels: JobLabel[], name: string): string[] {
  const exactly = labels.filter((label) => names(label).includes(name));
  const meant =
    exactly.length > 0 ? exactly : labels.filter((label) => names(label).some((one) => answersTo(one, name)));
  return meant.map(({ job }) => job);
}

const names = ({ name, key }: JobLabel): string[] =>
  [name, key?.split(':')[0]].filter((one): one is string => typeof one === 'string');

const withStem = (name: string): string[] => [name, stemOfName(name) ?? name];

export function noSuchJob(message: string, near: string | null = null): OomtuneError {
  const hint = near === null ? '' : `Did you mean \`${near}\`? `;
  return new OomtuneError('OOMTUNE_NO_SUCH_JOB', message, `${hint}See \`oomtune status\` for the jobs that there are.`);
}
