import { plainText } from '../../common/terminal.js';
import type { JobRecord } from '../../contract/job.js';
import { namedJobs } from '../jobs.js';
import { statusEntries } from '../status-entry.js';
import type { Verb } from '../verb.js';

export default (async ({ args }, context) => {
  const { out, signal } = context;
  const store = await context.store();
  const named = await namedJobs(store, args, out); // @ is the latest of now, not of later
  const [{ waitForJobs }, { patient }] = await Promise.all([
    import('../../daemon/index.js'),
    import('../../store/index.js'),
  ]);
  const ids = named.map(({ job }) => job);
  const tell = ({ job, name, state }: JobRecord, why: string) => out.note(plainText(`${job}  ${name}  ${state}${why}`));
  const jobs = await waitForJobs(
    store,
    ids,
    signal,
    (job) => {
      const { class: what, evidence } = job.failure ?? {};
      tell(job, what === undefined ? '' : `: ${what}${evidence ? `, ${evidence}` : ''}`);
    },
    (job) => tell(job, `: ${job.reason}`),
  );
  if (out.json) out.document('wait', { schema: 1, jobs: await statusEntries(patient(store, signal), jobs) });
  const failed = jobs
    .filter((job) => job.state !== 'succeeded')
    .sort((a, b) => Date.parse(a.ended_at ?? '') - Date.parse(b.ended_at ?? ''))[0];
  if (failed === undefined) return 0;
  return failed.state === 'exhausted' ? 3 : 4;
}) satisfies Verb;
