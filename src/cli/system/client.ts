import { lstatSync } from 'node:fs';
import { createConnection } from 'node:net';
import { OomtuneError, usageError } from '../../common/errors.js';
import { systemSocket } from '../../common/home.js';
import type { JobRecord } from '../../contract/job.js';
import { Channel, ChannelClosed } from '../../daemon/system/channel.js';

/** What the daemon of the machine says of itself and of the caller. */
export interface Hello {
  version: string;
  pid: number;
  host: string;
  started_at: string;
  /** The folder of the caller's state. */
  home: string;
  user: string;
  uid: number;
  admin: boolean;
  jobs: number;
  lacks: string | null;
}

const CONNECT_MS = 5000;

/** The socket of the machine's daemon, if there is one and the user has named neither a Redis nor a home of his own; else null. */
export function systemDaemon(redisUrl: string | null): string | null {
  if (redisUrl !== null || process.env.OOMTUNE_HOME) return null;
  const path = systemSocket();
  try {
    return path !== null && lstatSync(path).isSocket() ? path : null;
  } catch {
    return null;
  }
}

/** Throws OOMTUNE_USAGE where the daemon of the machine stands in the place of one of the user's own. */
export function refuseBesideSystem(redisUrl: string | null, doing: 'start' | 'stop'): void {
  const path = systemDaemon(redisUrl);
  if (path === null) return;
  throw usageError(
    `oomtune works with the daemon of this machine here, at ${path}, which is root's to ${doing}.`,
    `As root: systemctl ${doing} oomtune. Set OOMTUNE_HOME to a folder of yours for a daemon of your own.`,
  );
}

/** Throws OOMTUNE_NOT_PERMITTED for a job whose output only its owner and root can read on the disk. `hello` null: no daemon of the machine. */
export function checkMayRead(hello: Hello | null, { job, owner, uid }: JobRecord): void {
  if (hello === null || hello.uid === 0 || hello.uid === uid) return;
  const remedy = 'Its owner can read its output, and root on the disk.';
  throw new OomtuneError('OOMTUNE_NOT_PERMITTED', `${job} is a job of ${owner}.`, remedy);
}

/** Connects and says hello. Throws OOMTUNE_DAEMON_DOWN, or why the daemon refuses. */
export async function connectSystem(path: string): Promise<{ channel: Channel; hello: Hello }> {
  const socket = createConnection(path);
  const channel = new Channel(socket);
  const timer = setTimeout(() => channel.close(new Error('it does not answer')), CONNECT_MS);
  try {
    return { channel, hello: await channel.call<Hello>('hello', []) };
  } catch (error) {
    channel.close();
    throw error instanceof ChannelClosed ? down(path, error) : error;
  } finally {
    clearTimeout(timer);
  }
}

/** The connection is lost, said the same way wherever a verb stands; or why the daemon cut it off, where it told. */
export function down(path: string, cause: Error): OomtuneError {
  if (cause.cause instanceof OomtuneError) return cause.cause;
  const denied = /EACCES/.test(cause.message) ? ': permission denied' : '';
  return new OomtuneError(
    'OOMTUNE_DAEMON_DOWN',
    `The oomtune daemon of this machine does not answer at ${path}${denied}.`,
    '`systemctl status oomtune` tells more; set OOMTUNE_HOME to a folder of yours to work without it.',
    { cause },
  );
}
