import { usageError } from '../../common/errors.js';
import { systemDaemon } from '../system/client.js';
import type { Verb } from '../verb.js';

export default (async (_invocation, { out, redisUrl }) => {
  const { dashboardAddress, ownDaemonRuns } = await import('../../daemon/index.js');
  const path = systemDaemon(redisUrl);
  if (path !== null && !ownDaemonRuns()) {
    throw usageError(
      `oomtune works with the daemon of this machine here, at ${path}, whose dashboard shows all of every job: it is root's.`,
      'As root: OOMTUNE_HOME=/var/lib/oomtune/daemon oomtune dashboard. `oomtune top` shows devices and jobs to everybody.',
    );
  }
  const { url, address } = dashboardAddress();
  if (out.json) out.document('dashboard', { schema: 1, url, address });
  else out.data(address);
  return 0;
}) satisfies Verb;
