import { toJobOptions } from '../job-options.js';
import type { Verb } from '../program.js';

const submitVerb: Verb = async ({ options, command }, context) => {
  const { out } = context;
  const jobOptions = toJobOptions(options, command);
  const store = await context.store();
  const { submitJob } = await import('../../daemon/index.js');
  const job = await submitJob(store, { command, options: jobOptions, environment: process.env });
  if (out.json) out.document({ schema: 1, job: job.job });
  else out.data(job.job);
  return 0;
};

export default submitVerb;
