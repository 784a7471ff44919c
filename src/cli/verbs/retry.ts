import { namedJob } from '../jobs.js';
import type { Verb } from '../verb.js';

const retryVerb: Verb = async ({ args }, context) => {
  const { out } = context;
  const store = await context.store();
  const { job } = await namedJob(store, args[0] ?? '@', out);
  const { retryJob } = await import('../../daemon/index.js');
  await retryJob(store, job);
  if (out.json) out.document({ schema: 1, job });
  else out.data(job);
  return 0;
};

export default retryVerb;
