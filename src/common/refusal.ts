import { OomtuneError } from './errors.js';

/** Error codes of the file system, and how to say them. */
const FILE_SYSTEM: Record<string, string> = {
  ENOSPC: 'there is no room left on its disk',
  EDQUOT: "the user's disk quota is used up",
  EROFS: 'it is on a read-only file system',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  ENOTDIR: 'a file stands where a folder should be',
  EEXIST: 'a file stands where a folder should be',
  ENOENT: 'it cannot be made there',
  ENAMETOOLONG: 'its path is too long',
  ELOOP: 'its path goes round in circles',
  EIO: 'the disk does not answer',
};

export const PASSWORD_IN_URL =
  'Put it into the URL: redis://:password@host:6379, or with a user redis://user:password@host:6379.';

/** First words of Redis's error replies: what they mean, and what to do. */
const REDIS: Record<string, [why: string, remedy: string]> = {
  READONLY: ['it is a read-only replica', 'Give the URL of the primary.'],
  OOM: ['it is full (maxmemory)', 'Raise its maxmemory, or use another Redis.'],
  MISCONF: ['it cannot save its data', 'Look at its log; often the disk that it saves to is full.'],
  NOPERM: [
    'its user may not do that',
    'Give the user these rights: ACL SETUSER NAME ~{oomtune}:* &{oomtune}:* +@all -@dangerous +info.',
  ],
  NOAUTH: ['it asks for a password', PASSWORD_IN_URL],
  LOADING: ['it still loads its data', 'Try again in a moment.'],
  BUSY: ['it is busy with a script', 'Try again in a moment.'],
  MASTERDOWN: ['its primary is away', 'Give the URL of the primary.'],
  NOREPLICAS: ['it has too few replicas to write', 'Bring the replicas back, or lower min-replicas-to-write.'],
  CLUSTERDOWN: ['its cluster is down', 'Mend the cluster.'],
  MOVED: ['it is one node of a cluster', 'Use a Redis that is no cluster, or the node that has the slot of {oomtune}.'],
  WRONGTYPE: [
    'a key of oomtune holds something else',
    'Delete the key (docs/reference/redis.md has the type of each), or choose another OOMTUNE_PREFIX.',
  ],
};

const OTHER_HOME = 'Set OOMTUNE_HOME to a folder on a local disk that is yours and has room.';

/** Native code tells a full disk by its words alone. */
const remedyFor = (cause: unknown): string =>
  isFull(cause) || /No space left|quota exceeded/i.test(String(cause))
    ? `Make room there, or ${OTHER_HOME.replace(/^S/, 's')}`
    : OTHER_HOME;

/** Whether it, or its cause, is a full disk, which may pass. */
export function isFull(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOSPC' || code === 'EDQUOT' || isFull(error.cause);
}

export function unusableFolder(path: string, cause: unknown, remedy = remedyFor(cause)): OomtuneError {
  const error = cause as NodeJS.ErrnoException;
  const why = FILE_SYSTEM[error.code ?? ''] ?? error.message;
  return new OomtuneError(
    'OOMTUNE_HOME_UNUSABLE',
    `The folder ${path}, where oomtune keeps its state, cannot be used: ${why}.`,
    remedy,
    { cause },
  );
}

/** An error of the system or of Redis as one that a user can act on; null: another error. `home`: oomtune's folder, if there is one. */
export function refusal(thrown: unknown, home: string | null): OomtuneError | null {
  if (!(thrown instanceof Error)) return null;
  if (thrown.name === 'ReplyError') return refusedByRedis(thrown);
  const { code, path } = thrown as NodeJS.ErrnoException;
  if (code === undefined || !(code in FILE_SYSTEM) || home === null) return null;
  // a failed write does not name its file; if the disk is full, it is the one of our folder
  const ours = path === undefined ? code === 'ENOSPC' || code === 'EDQUOT' : `${path}/`.startsWith(`${home}/`);
  return ours && code !== 'ENOENT' && code !== 'EEXIST' ? unusableFolder(home, thrown) : null;
}

/** What to do about an error reply of Redis; null: it is none that is known. */
export const remedyOf = (reply: string): string | null => meaningOf(reply)?.[1] ?? null;

function meaningOf(reply: string): (typeof REDIS)[string] | undefined {
  const denied = /The user executing the script can't|ACL failure in script/.test(reply); // how a script is told NOPERM
  return REDIS[denied ? 'NOPERM' : (/WRONGTYPE|^[A-Z]+/.exec(reply)?.[0] ?? '')];
}

function refusedByRedis(error: Error): OomtuneError | null {
  const [why, remedy] = meaningOf(error.message) ?? [];
  if (why === undefined || remedy === undefined) return null;
  const keys = error.message.includes('WRONGTYPE') ? keysOf(error) : '';
  return new OomtuneError('OOMTUNE_REDIS_REFUSED', `Redis refused a command: ${why}${keys}.`, remedy, {
    cause: new Error(error.message), // not the client's own error: that one carries the command's arguments
  });
}

/** The keys of the command that failed, by the client's own error; empty: it does not say. A script is not told which of its keys it was. */
function keysOf(error: Error): string {
  const { name = '', args = [] } = (error as { command?: { name?: string; args?: unknown[] } }).command ?? {};
  const keys = name.startsWith('eval') ? args.slice(2, 2 + Number(args[1])) : args.slice(0, 1);
  return keys.length === 0 ? '' : ` (${keys.length > 1 ? 'one of ' : ''}${keys.join(', ')})`;
}
