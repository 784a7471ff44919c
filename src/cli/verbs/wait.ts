import { setTimeout as delay } from 'node:timers/promises';
import { namedJobs } from '../jobs.js';
import type { Verb } from '../program.js';
import { ENDED, hasEnded, statusEntry } from '../status-view.js';

/** Events wake the wait; this look now and then is for the event that was missed. */
const LOOK_SECONDS = 1;

const waitVerb: Verb = async ({ args }, context) => {
  const { out, signal } = context;
  const store = await context.store();
  let jobs = await namedJobs(store, args);
  const names = jobs.map((job) => job.job); // @ is the latest of now, not of later
  const told = new Set<string>();
  for (;;) {
    for (const job of jobs) {
      if (!hasEnded(job) || told.has(job.job)) continue;
      told.add(job.job);
      const why = job.failure ? `: ${job.failure.class}${job.failure.evidence ? `, ${job.failure.evidence}` : ''}` : '';
      out.note(`${job.job}  ${job.name}  ${job.state}${why}`);
    }
    if (jobs.every(hasEnded)) break;
    await delay(LOOK_SECONDS * 1000, undefined, { signal });
    jobs = await namedJobs(store, names);
  }
  if (out.json) out.document({ schema: 1, jobs: jobs.map(statusEntry) });
  const failed = jobs
    .filter((job) => job.state !== 'succeeded' && ENDED.includes(job.state))
    .sort((a, b) => Date.parse(a.ended_at ?? '') - Date.parse(b.ended_at ?? ''))[0];
  if (failed === undefined) return 0;
  return failed.state === 'exhausted' ? 3 : 4;
};

export default waitVerb;
