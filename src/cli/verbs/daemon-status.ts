import { tellStatus } from '../running.js';
import type { Verb } from '../verb.js';

const daemonStatusVerb: Verb = async (_invocation, context) => {
  const store = await context.store();
  const { daemonStatus } = await import('../../daemon/index.js');
  const status = { schema: 1 as const, ...(await daemonStatus(store)) };
  tellStatus(context.out, 'daemon-status', status, '`oomtune daemon start` starts it');
  return 0;
};

export default daemonStatusVerb;
