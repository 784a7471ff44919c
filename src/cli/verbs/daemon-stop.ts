import type { Verb } from '../verb.js';

const daemonStopVerb: Verb = async ({ options }, context) => {
  const { out } = context;
  const { stopDaemon } = await import('../../daemon/index.js');
  const stopped = await stopDaemon(() => context.store(), { kill: Boolean(options.kill) });
  if (out.json) out.document('daemon-stop', { schema: 1, stopped });
  else out.note(stopped ? 'stopped' : 'it was not running');
  return 0;
};

export default daemonStopVerb;
