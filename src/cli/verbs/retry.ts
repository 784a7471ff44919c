import { namedJob } from '../jobs.js';
import type { Verb } from '../program.js';

const retryVerb: Verb = async ({ args }, context) => {
  const { out } = context;
  const store = await context.store();
  const job = await namedJob(store, args[0] ?? '@');
  const { retryJob } = await import('../../daemon/index.js');
  const again = await retryJob(store, job.job);
  if (out.json) out.document({ schema: 1, job: again.job });
  else out.data(again.job);
  return 0;
};

export default retryVerb;
