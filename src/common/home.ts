import { chmodSync, mkdirSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unusableFolder } from './refusal.js';

/** The folder that the package was installed to: config/, python/, native/ and examples/ stand in it. */
export const PACKAGE_ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Makes a folder (and its parents) that only this user can enter, and returns its path. Throws OOMTUNE_HOME_UNUSABLE. */
export function privateFolder(path: string): string {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found?.isDirectory() && (found.mode & 0o777) === 0o700) return path;
    makeFolder(path);
    const { mode } = statSync(path);
    if ((mode & 0o777) !== 0o700) chmodSync(path, 0o700); // an older folder may be open to others
  } catch (cause) {
    throw unusableFolder(path, cause);
  }
  return path;
}

/** mkdir's own `recursive` never ends where a folder cannot be made although its parent is there, as in /proc. */
function makeFolder(path: string): void {
  try {
    mkdirSync(path, 0o700);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST' && statSync(path).isDirectory()) return;
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
    makeFolder(dirname(path));
    mkdirInMadeParent(path);
  }
}

function mkdirInMadeParent(path: string): void {
  try {
    mkdirSync(path, 0o700);
  } catch (error) {
    // another process of the user's made it in between
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !statSync(path).isDirectory()) throw error;
  }
}

/** Whether a folder is there; false where a file stands on the way to it. */
export function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/**
 * Where oomtune keeps its state: `OOMTUNE_HOME`, else `$XDG_STATE_HOME/oomtune`, else `~/.local/state/oomtune`.
 * Holds redis/, runs/ and daemon/, all 0700.
 */
export function homeFolder(): string {
  return privateFolder(homePath());
}

/** The same, without making it. Absolute: the Redis server and the jobs work in folders of their own. */
export function homePath(): string {
  const { OOMTUNE_HOME, XDG_STATE_HOME } = process.env;
  return resolve(OOMTUNE_HOME || join(XDG_STATE_HOME || join(homedir(), '.local', 'state'), 'oomtune'));
}

/** A folder below home, made on first use. */
export function stateFolder(...parts: string[]): string {
  let path = homeFolder();
  for (const part of parts) path = privateFolder(join(path, part));
  return path;
}
