import { plainText } from '../../common/terminal.js';
import { namedJobs } from '../jobs.js';
import { statusEntries } from '../status-entry.js';
import type { Verb } from '../verb.js';

export default (async ({ args }, context) => {
  const { out, signal } = context;
  const store = await context.store();
  const named = await namedJobs(store, args, out); // @ is the latest of now, not of later
  const { waitForJobs } = await import('../../daemon/index.js');
  const ids = named.map(({ job }) => job);
  const jobs = await waitForJobs(store, ids, signal, (job) => {
    const why = job.failure ? `: ${job.failure.class}${job.failure.evidence ? `, ${job.failure.evidence}` : ''}` : '';
    out.note(plainText(`${job.job}  ${job.name}  ${job.state}${why}`));
  });
  if (out.json) out.document('wait', { schema: 1, jobs: await statusEntries(store, jobs) });
  const failed = jobs
    .filter((job) => job.state !== 'succeeded')
    .sort((a, b) => Date.parse(a.ended_at ?? '') - Date.parse(b.ended_at ?? ''))[0];
  if (failed === undefined) return 0;
  return failed.state === 'exhausted' ? 3 : 4;
}) satisfies Verb;
