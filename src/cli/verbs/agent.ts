import type { Verb } from '../verb.js';

/** What the daemon for all users of a machine starts for each of them, with a pipe to itself. */
export default (async ({ args }) => {
  const { runAgent } = await import('../../daemon/system/agent.js');
  await runAgent(args[0] as string);
  return 0;
}) satisfies Verb;
