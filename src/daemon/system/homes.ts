import { chmodSync, lchownSync, lstatSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { OomtuneError } from '../../common/errors.js';

/**
 * The folders of a daemon for several users, below one that belongs to root: `daemon/` is its own, `users/<uid>/` each user's, where
 * that user's jobs have their logs. The daemon makes such a folder and then never opens anything in it: it could be anything.
 */
export class Homes {
  readonly #made = new Set<number>();

  constructor(private readonly root: string) {
    ownFolder(root, 0o711);
    ownFolder(join(root, 'users'), 0o711);
  }

  /** Throws OOMTUNE_HOME_UNUSABLE where something else stands in its place. */
  of({ uid, gid }: { uid: number; gid: number }): string {
    const path = join(this.root, 'users', String(uid));
    if (this.#made.has(uid)) return path;
    const before = lstatSync(path, { throwIfNoEntry: false });
    if (before === undefined) mkdirSync(path, 0o700);
    else if (!before.isDirectory() || (before.uid !== uid && before.uid !== 0)) throw unusable(path, before.uid);
    lchownSync(path, uid, gid); // nobody else can put anything into its place: the folder around it is root's
    this.#made.add(uid);
    return path;
  }

  /** Where the launches of this user's jobs stand. */
  runsOf(uid: number): string {
    return join(this.root, 'users', String(uid), 'runs');
  }

  /** Whose folder this path stands in; null: nobody's. */
  ownerOf(path: string): number | null {
    const users = join(this.root, 'users', '/');
    const [uid = ''] = path.startsWith(users) ? path.slice(users.length).split('/') : [];
    return /^\d{1,10}$/.test(uid) && !path.includes('/../') ? Number(uid) : null;
  }
}

function ownFolder(path: string, mode: number): void {
  try {
    mkdirSync(path, { recursive: true, mode });
  } catch (cause) {
    throw unusable(path, null, cause);
  }
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== (process.geteuid?.() ?? 0)) throw unusable(path, found.uid);
  if ((found.mode & 0o777) !== mode) chmodSync(path, mode);
}

function unusable(path: string, uid: number | null, cause?: unknown): OomtuneError {
  const why = cause instanceof Error ? cause.message : `something of another user (uid ${uid}) stands there`;
  return new OomtuneError(
    'OOMTUNE_HOME_UNUSABLE',
    `The folder ${path} of the machine's daemon cannot be used: ${why}.`,
    'Move it away, or name another folder by OOMTUNE_SYSTEM_HOME.',
    { cause },
  );
}
