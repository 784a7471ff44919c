import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { join } from 'node:path';
import { tokenIn } from '../../common/durable-file.js';
import { OomtuneError } from '../../common/errors.js';
import { stateFolder } from '../../common/home.js';
import { hostName } from '../../store/index.js';
import { readDaemonFile } from '../daemon-file.js';

const SESSION_SECONDS = 30 * 24 * 3600;

/** The dashboard's token, not the daemon's, which hosts tell each other in part. */
export const tokenPath = (): string => join(stateFolder('daemon'), 'dashboard-token');

export const dashboardToken = (path = tokenPath()): string => tokenIn(path, { bytes: 32, least: 40 });

/** Admits the token's bearer, or a session made from it, as cookies go to every port of a host. A new token ends all sessions. */
export class Authenticator {
  constructor(private readonly token: string) {}

  acceptsToken(candidate: string): boolean {
    return same(candidate, this.token);
  }

  /** `<end, s>.<nonce>.<mac>` */
  newSession(now = Date.now()): { value: string; seconds: number } {
    const body = `${Math.floor(now / 1000) + SESSION_SECONDS}.${randomBytes(12).toString('base64url')}`;
    return { value: `${body}.${this.#mac(body)}`, seconds: SESSION_SECONDS };
  }

  acceptsSession(value: string, now = Date.now()): boolean {
    const parts = /^((\d{1,12})\.[\w-]{16})\.([\w-]{43})$/.exec(value);
    if (parts === null) return false;
    const [, body = '', end = '', mac = ''] = parts;
    return same(mac, this.#mac(body)) && Number(end) * 1000 > now;
  }

  #mac(body: string): string {
    return createHmac('sha256', this.token).update(`session.${body}`).digest('base64url');
  }
}

/** Compares in constant time, also for different lengths. */
function same(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** The dashboard's address with the token behind `#`, which browsers do not send. Throws OOMTUNE_DAEMON_DOWN. */
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
