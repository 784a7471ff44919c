import type { Verb } from '../program.js';

const daemonRunVerb: Verb = async (_invocation, context) => {
  const store = await context.store();
  const { runDaemon } = await import('../../daemon/index.js');
  await runDaemon(store, { signal: context.signal });
  return 0;
};

export default daemonRunVerb;
