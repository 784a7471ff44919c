import { namedJob } from '../jobs.js';
import type { Verb } from '../program.js';
import { cannot } from '../steer.js';

const retryVerb: Verb = async ({ args }, context) => {
  const { out } = context;
  const store = await context.store();
  const { job } = await namedJob(store, args[0] ?? '@');
  const state = await store.jobs.retry(job);
  if (state !== 'queued') throw cannot(job, state, 'retried', 'Only a job that has ended can be retried.');
  if (out.json) out.document({ schema: 1, job });
  else out.data(job);
  return 0;
};

export default retryVerb;
