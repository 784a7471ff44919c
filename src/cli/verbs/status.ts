import { setTimeout as delay } from 'node:timers/promises';
import { usageError } from '../../common/errors.js';
import { plain } from '../../common/terminal.js';
import { fairShare, patient } from '../../store/index.js';
import { jobsCsv } from '../csv.js';
import { type JobFilter, jobFilter } from '../job-filter.js';
import { createListing } from '../job-listing.js';
import { shown } from '../output.js';
import { statusEntries } from '../status-entry.js';
import { renderJob, renderJobs } from '../status-view.js';
import { renderUsers } from '../users-view.js';
import { readNumber, type Verb } from '../verb.js';

const SHOWN = 20;

export default (async ({ args, options }, context) => {
  const { out, signal } = context;
  const remedy = 'Write how many ended jobs to show: --limit 50.';
  const limit = readNumber('--limit', options.limit, { remedy }) ?? SHOWN;
  const filter = jobFilter(options);
  checkTogether(options, args, filter, out.json);
  const store = await context.store();
  if (options.users) {
    const { userShares } = await import('../../daemon/index.js');
    const users = await userShares(store);
    if (out.json) out.document('status-users', { schema: 1, half_life_s: fairShare().halfLifeMs / 1000, users });
    else out.data(users.length === 0 ? 'Nobody has used anything yet.' : renderUsers(users, out.paint));
    return 0;
  }
  let drawn = false;
  const read = options.watch ? patient(store, signal, () => drawn) : store;
  const listing = await createListing(read, { names: args, filter, limit, note: out.note });
  const picture = async (): Promise<string> => {
    const { jobs, foreground } = await listing.read();
    const lines = (await listing.unreadable()).map(
      ({ job, why }) => `${job}  cannot be read and is left alone: ${why}`,
    );
    if (jobs.length + foreground.length === 0 && lines.length > 0) return lines.join('\n');
    if (jobs.length + foreground.length === 0 && filter.narrows) return 'No such jobs. `oomtune status` shows all.';
    if (jobs.length + foreground.length === 0) return 'No jobs. `oomtune submit -- COMMAND…` queues one.';
    return jobs.length === 1 && args.length === 1 && jobs[0]
      ? renderJob(jobs[0], out.paint)
      : [renderJobs(jobs, foreground, out.paint), ...lines].join('\n');
  };
  if (options.watch) {
    while (!signal.aborted) {
      out.exact(repaint(shown(await picture(), process.stdout)));
      drawn = true;
      await delay(1000, undefined, { signal }).catch(() => {});
    }
    return context.interruptedBy ?? 130;
  }
  if (!out.json && !options.csv) {
    out.data(await picture());
    return 0;
  }
  const { jobs, foreground } = await listing.read();
  const entries = await statusEntries(store, jobs);
  if (options.csv) out.exact(jobsCsv(plain(entries)));
  else out.document('status', { schema: 1, jobs: entries, foreground, unreadable: await listing.unreadable() });
  return 0;
}) satisfies Verb;

/** Throws OOMTUNE_USAGE for options that say opposite things. */
function checkTogether(options: Record<string, unknown>, args: string[], filter: JobFilter, json: boolean): void {
  const remedy = 'Leave one of the two out.';
  if (options.watch && json)
    throw usageError('--watch shows a picture that changes; --json writes one document.', remedy);
  if (options.csv && json) throw usageError('--csv and --json are two forms of the same.', remedy);
  if (options.csv && options.watch)
    throw usageError('--watch shows a picture that changes; --csv writes one table.', remedy);
  if (options.users && (args.length > 0 || filter.narrows || filter.order !== null || options.watch || options.csv)) {
    const rest = 'Leave out the jobs, --watch, --csv, --sort and what narrows the jobs down.';
    throw usageError('--users shows users, not jobs.', rest);
  }
}

/** Overwrites the last picture without flicker; in a pipe pictures follow each other. */
function repaint(text: string): string {
  if (!process.stdout.isTTY) return `${text}\n`;
  const rows = Math.max(1, (process.stdout.rows || 24) - 1);
  return `\u001b[H${text
    .split('\n')
    .slice(0, rows)
    .map((line) => `${line}\u001b[K`)
    .join('\n')}\n\u001b[J`;
}
