import { OomtuneError } from '../common/errors.js';
import type { JobRecord } from '../contract/job.js';
import { namedJob as findJob, jobsLike, type NamedJob, type Store } from '../store/index.js';
import type { Output } from './output.js';
import { foregroundEntries } from './status-entry.js';
import { ago, plural } from './words.js';

/** The jobs named by id, name, pattern (`sweep-*`) or `@`, each once and in that order. Throws OOMTUNE_NO_SUCH_JOB. */
export async function namedJobs(store: Store, names: string[], out: Pick<Output, 'note'>): Promise<JobRecord[]> {
  const found = await Promise.all(
    names.map(async (name) => {
      if (/[*?]/.test(name)) return jobsLike(store.jobs, name);
      const one = await findJob(store.jobs, name).catch(orRecorded(store, name));
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

/** Explains a name that is not a job's but a foreground command's or a recommendation's. */
function orRecorded(store: Store, name: string): (error: unknown) => Promise<never> {
  return async (error) => {
    const isMissing = error instanceof OomtuneError && error.code === 'OOMTUNE_NO_SUCH_JOB';
    if (!isMissing || name === '@') throw error;
    const beside = (await foregroundEntries(store)).find((one) => one.job === name || one.name === name);
    if (beside !== undefined) {
      throw new OomtuneError(
        'OOMTUNE_NO_SUCH_JOB',
        `"${name}" is no job: oomtune ${beside.verb} works on it in the foreground.`,
        `It ends with Ctrl-C there, or by \`kill ${beside.pid}\` on ${beside.host}.`,
      );
    }
    if ((await store.recommendations.find(name)).length === 0) throw error;
    throw new OomtuneError(
      'OOMTUNE_NO_SUCH_JOB',
      `There is no job "${name}", only a recorded configuration.`,
      `\`oomtune explain ${name}\` tells how it was found; \`oomtune status\` shows the jobs that there are.`,
    );
  };
}
