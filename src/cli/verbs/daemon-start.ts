import { daemonOptions } from '../daemon-options.js';
import type { Verb } from '../verb.js';

const daemonStartVerb: Verb = async ({ options }, context) => {
  const { out } = context;
  const settings = daemonOptions(options);
  const store = await context.store();
  const { startDaemon } = await import('../../daemon/index.js');
  const status = await startDaemon(store, settings);
  if (out.json) out.document('daemon-start', { schema: 1, ...status });
  else {
    out.note(`daemon runs, pid ${status.pid} on ${status.host}`);
    if (status.dashboard !== null) out.note('`oomtune dashboard` prints the address of its dashboard');
    else if (status.dashboard_fault !== null) {
      out.note(
        `note: it has no dashboard and no metrics (${status.dashboard_fault}); start it with another --http-port`,
      );
    }
    if (process.getuid?.() === 0) out.note('note: it runs as root, and so will the jobs');
  }
  return 0;
};

export default daemonStartVerb;
