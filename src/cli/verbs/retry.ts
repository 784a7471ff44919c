import { hostName } from '../../store/process-identity.js';
import { namedJob } from '../jobs.js';
import type { Verb } from '../verb.js';

export default (async ({ args }, context) => {
  const { out } = context;
  const store = await context.store();
  const { job, owner, uid } = await namedJob(store, args[0] ?? '@', out);
  const system = await context.system();
  const another = system !== null && system.uid !== uid;
  const { retryJob } = await import('../../daemon/index.js');
  const { options } = await retryJob(store, job, process.env);
  const here = hostName();
  const missing = options.env.filter((name) => process.env[name] === undefined);
  out.note(
    another
      ? `${job} is a job of ${owner}, whose environment is no longer there: it gets that of a login.`
      : options.host === null || options.host === here
        ? `The environment that ${job} was submitted with was removed when it ended: it gets this shell's.`
        : `${job} runs on ${options.host}: it gets what the allow-list and --env take of its daemon's environment.`,
  );
  if (missing.length > 0 && !another)
    out.note(
      `Not set in this shell, though --env named ${missing.length === 1 ? 'it' : 'them'}: ${missing.join(', ')}.`,
    );
  if (out.json) out.document('retry', { schema: 1, job });
  else out.data(job);
  return 0;
}) satisfies Verb;
