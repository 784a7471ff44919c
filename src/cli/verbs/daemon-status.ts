import { tellStatus } from '../running.js';
import type { Verb } from '../verb.js';

const daemonStatusVerb: Verb = async (_invocation, context) => {
  const store = await context.store();
  const { daemonStatus } = await import('../../daemon/index.js');
  tellStatus(context.out, await daemonStatus(store), '`oomtune daemon start` starts it');
  return 0;
};

export default daemonStatusVerb;
