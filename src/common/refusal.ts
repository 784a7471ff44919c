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

const BY_SOCKET = 'unix:///path/to/redis.sock?username=USER&password=PASSWORD';
const BY_TCP = 'redis://:password@host:6379, or with a user redis://user:password@host:6379';

/** Where a password goes in a URL like this one; null: it is not known which. */
export function passwordRemedy(url: string | null): string {
  if (url === null) return `Put it into the URL: ${BY_TCP}; for a socket ${BY_SOCKET}.`;
  return url.startsWith('unix:')
    ? `Put the password, and the user if there is one, into the URL: ${BY_SOCKET}.`
    : `Put it into the URL: ${BY_TCP}.`;
}

/** How it is said that a key is of another type. */
export const WRONG_TYPE = 'a key of oomtune holds something else';

/** First words of Redis's error replies: what they mean, and what to do. */
const REDIS: Record<string, [why: string, remedy: string]> = {
  READONLY: ['it is a read-only replica', 'Give the URL of the primary.'],
  OOM: ['it is full (maxmemory)', 'Raise its maxmemory, or use another Redis.'],
  MISCONF: ['it cannot save its data', 'Look at its log; often the disk that it saves to is full.'],
  NOPERM: [
    'its user may not do that',
    'Give the user these rights: ACL SETUSER NAME ~{oomtune}:* &{oomtune}:* +@all -@dangerous +info.',
  ],
  NOAUTH: ['it asks for a password', passwordRemedy(null)],
  WRONGPASS: ['it asks for another password', passwordRemedy(null)],
  LOADING: ['it still loads its data', 'Try again in a moment.'],
  BUSY: ['it is busy with a script', 'Try again in a moment.'],
  MASTERDOWN: ['its primary is away', 'Give the URL of the primary.'],
  NOREPLICAS: ['it has too few replicas to write', 'Bring the replicas back, or lower min-replicas-to-write.'],
  CLUSTERDOWN: ['its cluster is down', 'Mend the cluster.'],
  MOVED: ['it is one node of a cluster', 'Use a Redis that is no cluster, or the node that has the slot of {oomtune}.'],
  WRONGTYPE: [
    WRONG_TYPE,
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

/** What to do about an error reply of the Redis at `url`; null: it is none that is known. */
export function remedyOf(reply: string, url: string): string | null {
  return /^(NOAUTH|WRONGPASS)$/.test(wordOf(reply)) ? passwordRemedy(url) : (meaningOf(reply)?.[1] ?? null);
}

/** What an error reply of Redis means; one that is not known as it stands, but for the place in the script that met it. */
export function replyInWords(reply: string): string {
  return meaningOf(reply)?.[0] ?? reply.replace(IN_SCRIPT, '').replace(AT_SCRIPT, '');
}

/** How a script's error begins before Redis 7, and how it ends from then on. */
const IN_SCRIPT = /^ERR Error (?:running|compiling) script \(.*?\): (?:@\w+: ?\d+: )*-?/;
const AT_SCRIPT = /,? script: [0-9a-f]{40}, on @\w+:\d+\.?$/;

const meaningOf = (reply: string): (typeof REDIS)[string] | undefined => REDIS[wordOf(reply)];

/** The word by which an error reply is known. */
function wordOf(reply: string): string {
  if (/The user executing the script can't|ACL failure in script/.test(reply)) return 'NOPERM'; // how a script is told it
  return /WRONGTYPE|^[A-Z]+/.exec(reply.replace(IN_SCRIPT, ''))?.[0] ?? '';
}

/** For an error reply that is not known here: of another version, of a proxy, or of a service that leaves commands out. */
const UNKNOWN_REMEDY = '`oomtune doctor` examines it, and its log may say why.';

/** Whether a script of ours met an error that is none of Redis's own: no user can mend it. */
const isFaultOfScript = (reply: string): boolean =>
  wordOf(reply) === 'ERR' &&
  (IN_SCRIPT.test(reply) || AT_SCRIPT.test(reply)) &&
  !/unknown (redis )?command/i.test(reply);

function refusedByRedis(error: Error): OomtuneError | null {
  if (isFaultOfScript(error.message)) return null;
  const [why, remedy] = meaningOf(error.message) ?? [replyInWords(error.message).replace(/\.$/, ''), UNKNOWN_REMEDY];
  const keys = error.message.includes('WRONGTYPE') ? keysOf(error) : '';
  return new OomtuneError('OOMTUNE_REDIS_REFUSED', `Redis refused a command: ${why}${keys}.`, remedy, {
    cause: new Error(error.message), // not the client's own error: that one carries the command's arguments
  });
}

/** The keys that hold something else, where they are known, or those of the command that failed, by the client's own error; empty: it does not say. */
function keysOf(error: Error): string {
  const { wrongKeys } = error as { wrongKeys?: string[] };
  if (wrongKeys !== undefined) return ` (${wrongKeys.join(', ')})`;
  const { name = '', args = [] } = (error as { command?: { name?: string; args?: unknown[] } }).command ?? {};
  const keys = name.startsWith('eval') ? args.slice(2, 2 + Number(args[1])) : args.slice(0, 1);
  return keys.length === 0 ? '' : ` (${keys.length > 1 ? 'one of ' : ''}${keys.join(', ')})`;
}
