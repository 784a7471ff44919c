import { daemonOptions } from '../daemon-options.js';
import type { Verb } from '../verb.js';

/** Until a signal: which is how a daemon ends well, so that the exit code is 0. */
const daemonRunVerb: Verb = async ({ options }, context) => {
  const settings = daemonOptions(options);
  const store = await context.store();
  const { runDaemon } = await import('../../daemon/index.js');
  await runDaemon(store, { signal: context.signal, ...settings });
  return 0;
};

export default daemonRunVerb;
