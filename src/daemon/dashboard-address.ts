import { OomtuneError } from '../common/errors.js';
import { hostName } from '../store/index.js';
import { readDaemonFile } from './daemon-file.js';
import { dashboardToken } from './http/token.js';

/**
 * Where the dashboard of this host is, and its address with the token. The token stands behind the `#`, which no browser
 * sends anywhere. Throws OOMTUNE_DAEMON_DOWN where there is none.
 */
export function dashboardAddress(): { url: string; address: string } {
  const file = readDaemonFile(hostName());
  if (file === null) {
    throw new OomtuneError('OOMTUNE_DAEMON_DOWN', 'No daemon runs on this host.', '`oomtune daemon start` starts it.');
  }
  if (file.dashboard === null) {
    throw new OomtuneError(
      'OOMTUNE_DAEMON_DOWN',
      `The daemon (pid ${file.pid}) serves no dashboard.`,
      'It was started with --http-port 0, or its port was taken: its log says which.',
    );
  }
  return { url: file.dashboard, address: `${file.dashboard}#token=${dashboardToken()}` };
}
