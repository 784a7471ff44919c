import { join } from 'node:path';
import { OomtuneError } from '../common/errors.js';
import type { JobRecord } from '../contract/job.js';
import { namedJob as findJob, jobsLike, type NamedJob, type Store } from '../store/index.js';
import type { Output } from './output.js';
import { foregroundEntries } from './status-entry.js';
import { ago, plural } from './words.js';

/** The jobs named by id, name, pattern (`sweep-*`) or `@`, each once and in that order; where it `takesForeground`, what ran there, too. Throws OOMTUNE_NO_SUCH_JOB. */
export async function namedJobs(
  store: Store,
  names: string[],
  out: Pick<Output, 'note'>,
  { takesForeground = false } = {},
): Promise<JobRecord[]> {
  const found = await Promise.all(
    names.map(async (name) => {
      if (/[*?]/.test(name)) return jobsLike(store.jobs, name);
      const one = await findJob(store.jobs, name).catch(async (error: unknown) => {
        if (!isMissing(error) || name === '@') throw error;
        const { foregroundJob } = await import('./foreground-jobs.js');
        const ran = foregroundJob(name);
        return ran !== null && takesForeground ? ran : orRecorded(store, name, ran, error);
      });
      if (!('namesakes' in one)) return [one];
      sayWhich(name, one, out);
      return [one.job];
    }),
  );
  return [...new Map(found.flat().map((job) => [job.job, job])).values()];
}

export async function namedJob(store: Store, name: string, out: Pick<Output, 'note'>): Promise<JobRecord> {
  return (await namedJobs(store, [name], out))[0] as JobRecord;
}

export function sayWhich(name: string, { job, namesakes }: NamedJob, out: Pick<Output, 'note'>): void {
  if (namesakes < 2) return;
  const which = `${job.job} is the latest (${job.state}, submitted ${ago(job.submitted_at)})`;
  out.note(`note: ${plural(namesakes, 'job')} are called ${name}; ${which}.`);
}

const isMissing = (error: unknown): boolean => error instanceof OomtuneError && error.code === 'OOMTUNE_NO_SUCH_JOB';

/** Explains a name that is not a job's but a foreground command's or a recommendation's. */
async function orRecorded(store: Store, name: string, ran: JobRecord | null, error: unknown): Promise<never> {
  const beside = (await foregroundEntries(store)).find((one) => one.job === name || one.name === name);
  if (beside !== undefined) {
    throw new OomtuneError(
      'OOMTUNE_NO_SUCH_JOB',
      `"${name}" is no job: oomtune ${beside.verb} works on it in the foreground.`,
      `It ends with Ctrl-C there, or by \`kill ${beside.pid}\` on ${beside.host}.`,
    );
  }
  const recorded = await store.recommendations.find(name);
  if (ran !== null && (ran.job === name || recorded.length === 0)) {
    const dir = ran.launches.at(-1)?.dir;
    throw new OomtuneError(
      'OOMTUNE_NO_SUCH_JOB',
      `"${name}" is no job of the queue: it ran in the foreground (${ran.state}).`,
      `\`oomtune explain ${ran.job}\` tells how it went${dir === undefined ? '' : `, \`oomtune logs ${ran.job}\` shows what it printed (${join(dir, 'log')})`}.`,
    );
  }
  if (recorded.length === 0) throw error;
  throw new OomtuneError(
    'OOMTUNE_NO_SUCH_JOB',
    `There is no job "${name}", only a recorded configuration.`,
    `\`oomtune explain ${name}\` tells how it was found; \`oomtune status\` shows the jobs that there are.`,
  );
}
