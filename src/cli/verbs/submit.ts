import { withheldNote } from '../../daemon/withheld.js';
import type { NamedJob } from '../../store/index.js';
import { jobEnvironment } from '../../worker/environment.js';
import { toJobOptions } from '../job-options.js';
import { sayWhich } from '../jobs.js';
import type { Verb } from '../verb.js';

const submitVerb: Verb = async ({ options, command }, context) => {
  const { out } = context;
  const jobOptions = toJobOptions(options, command);
  // Said now, not after hours in the queue; where the job may go to another host, only that host can know.
  if (jobOptions.host === null && jobOptions.gpuModel === null) {
    const { findCommand } = await import('../../runtime/command.js');
    findCommand(command[0] as string, jobEnvironment(jobOptions, process.env), jobOptions.cwd);
  }
  const store = await context.store();
  const { submitJob } = await import('../../daemon/index.js');
  const onNamed = (name: string, found: NamedJob): void => sayWhich(name, found, out);
  const job = await submitJob(store, { command, options: jobOptions, environment: process.env, onNamed });
  const elsewhere = job.options.host !== null && job.options.host !== job.environment?.host;
  const bound = elsewhere ? withheldNote(job.environment, job.environment?.bound) : null;
  if (bound !== null) out.note(bound);
  if (out.json) out.document({ schema: 1, job: job.job });
  else out.data(job.job);
  return 0;
};

export default submitVerb;
