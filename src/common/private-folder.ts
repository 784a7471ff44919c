import { hash } from 'node:crypto';
import { closeSync, constants, fchmodSync, fstatSync, lstatSync, mkdirSync, openSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { OomtuneError } from './errors.js';
import { unusableFolder } from './refusal.js';

/** Paths longer than this leave no room for the name of a socket (107 bytes in all). */
const LONGEST_BASE = 50;

/** Makes a folder 0700, checked by its descriptor so that nobody can swap it. Returns its path. Throws OOMTUNE_HOME_UNUSABLE. */
export function privateFolder(path: string): string {
  try {
    secure(path, everybodyWrites(dirname(path)));
  } catch (cause) {
    throw cause instanceof OomtuneError ? cause : unusableFolder(path, cause);
  }
  return path;
}

/** A private folder in /tmp for this user and `home`, where a path must be short. Throws OOMTUNE_HOME_UNUSABLE. */
export function temporaryFolder(home: string): string {
  const shared = tmpdir();
  let path = shared.length > LONGEST_BASE || /[\s:;]/.test(shared) ? '/tmp' : shared;
  for (const name of [`oomtune-${uid()}`, hash('sha256', home).slice(0, 8)]) {
    path = join(path, name);
    try {
      secure(path, true);
    } catch (cause) {
      throw unusableFolder(path, cause, 'Remove it, or set TMPDIR or OOMTUNE_HOME to another folder.');
    }
  }
  return path;
}

/** A unix socket's path, of at most 107 bytes: a longer one moves into a private folder under /tmp, as `name`. */
export function socketPath(home: string, path: string, name: string): string {
  return Buffer.byteLength(path) <= 107 ? path : join(temporaryFolder(home), name);
}

const uid = (): number => process.geteuid?.() ?? 0;

function secure(path: string, exposed: boolean): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory() && found.uid === uid() && (found.mode & 0o777) === 0o700) return;
  makeFolder(path);
  const folder = openFolder(path, exposed);
  try {
    const { uid: owner, mode } = fstatSync(folder);
    // Root may be told to use another user's folder; one that just lies in /tmp is a trap
    if (owner !== uid() && (exposed || uid() !== 0)) throw new Error(`it belongs to another user (uid ${owner})`);
    if ((mode & 0o777) !== 0o700) fchmodSync(folder, 0o700); // an older folder may be open to others
  } finally {
    closeSync(folder);
  }
}

function openFolder(path: string, exposed: boolean): number {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NONBLOCK;
  try {
    return openSync(path, exposed ? flags | constants.O_NOFOLLOW : flags);
  } catch (error) {
    if (exposed && lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink())
      throw new Error('a link stands in its place');
    throw error;
  }
}

function everybodyWrites(folder: string): boolean {
  return ((statSync(folder, { throwIfNoEntry: false })?.mode ?? 0) & 0o002) !== 0;
}

/** mkdir's own `recursive` never ends where a folder cannot be made although its parent is there, as in /proc. */
function makeFolder(path: string, withParents = true): void {
  try {
    mkdirSync(path, 0o700);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return; // what it is shows when it is opened; another process of the user's may just have made it
    if (!withParents || code !== 'ENOENT' || dirname(path) === path) throw error;
    makeFolder(dirname(path));
    makeFolder(path, false);
  }
}
