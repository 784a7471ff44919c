import { setTimeout as delay } from 'node:timers/promises';
import { usageError } from '../../common/errors.js';
import { fairShare } from '../../store/index.js';
import { namedJobs } from '../jobs.js';
import { printable } from '../output.js';
import { foregroundEntries, statusEntries } from '../status-entry.js';
import { renderJob, renderJobs } from '../status-view.js';
import { renderUsers } from '../users-view.js';
import { readNumber, type Verb } from '../verb.js';

const SHOWN = 20;

export default (async ({ args, options }, context) => {
  const { out, signal } = context;
  const remedy = 'Write how many ended jobs to show: --limit 50.';
  const limit = readNumber('--limit', options.limit, { remedy }) ?? SHOWN;
  if (options.watch && out.json) {
    throw usageError('--watch shows a picture that changes; --json writes one document.', 'Leave one of the two out.');
  }
  if (options.users && (args.length > 0 || options.user !== undefined || options.watch))
    throw usageError('--users shows users, not jobs.', 'Leave out the jobs, --user and --watch.');
  const store = await context.store();
  if (options.users) {
    const { userShares } = await import('../../daemon/index.js');
    const users = await userShares(store);
    if (out.json) out.document('status-users', { schema: 1, half_life_s: fairShare().halfLifeMs / 1000, users });
    else out.data(users.length === 0 ? 'Nobody has used anything yet.' : renderUsers(users, out.paint));
    return 0;
  }
  const isShown = ({ owner }: { owner: string | null }) => options.user === undefined || owner === options.user;
  const said = new Set<string>(); // a picture that is drawn anew each second says which job it means only once
  const once = { note: (text: string) => void (said.size === said.add(text).size || out.note(text)) };
  const { followSlurm, withSilence } = await import('../../daemon/index.js');
  const read = async () => {
    await followSlurm(store);
    const found = args.length > 0 ? await namedJobs(store, args, once) : await store.jobs.list({ ended: limit });
    return (await withSilence(store, found)).filter(isShown);
  };
  const unreadable = () => (args.length > 0 ? [] : store.jobs.unreadable());
  const foreground = async () => (args.length > 0 ? [] : (await foregroundEntries(store)).filter(isShown));
  const picture = async (): Promise<string> => {
    const jobs = await read();
    const beside = await foreground();
    const lines = (await unreadable()).map(({ job, why }) => `${job}  cannot be read and is left alone: ${why}`);
    if (jobs.length + beside.length === 0 && lines.length > 0) return lines.join('\n');
    if (jobs.length + beside.length === 0) return 'No jobs. `oomtune submit -- COMMAND…` queues one.';
    return jobs.length === 1 && args.length === 1 && jobs[0]
      ? renderJob(jobs[0], out.paint)
      : [renderJobs(jobs, beside, out.paint), ...lines].join('\n');
  };
  if (options.watch) {
    while (!signal.aborted) {
      out.exact(repaint(printable(await picture())));
      await delay(1000, undefined, { signal }).catch(() => {});
    }
    return 130;
  }
  if (out.json)
    out.document('status', {
      schema: 1,
      jobs: await statusEntries(store, await read()),
      foreground: await foreground(),
      unreadable: await unreadable(),
    });
  else out.data(await picture());
  return 0;
}) satisfies Verb;

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
