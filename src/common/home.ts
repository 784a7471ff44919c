import { readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { OomtuneError } from './errors.js';
import { privateFolder } from './private-folder.js';

/** The package's folder: config/, python/, native/ and examples/ are in it. */
export const PACKAGE_ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Whether a folder is there; false where a file stands on the way to it. */
export function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** Where oomtune keeps its state (0700): `OOMTUNE_HOME`, else `$XDG_STATE_HOME/oomtune`, else `~/.local/state/oomtune`. */
export const homeFolder = (): string => privateFolder(homePath());

let given: string | null = null;

/** Sets the home for this process alone: unlike a variable of the environment it is not handed down to jobs. */
export function useHome(path: string): void {
  given = path;
}

/** A relative home is one of the folder that a command is called in, also for a daemon and jobs, which work in others. */
export function anchorHome(environment: NodeJS.ProcessEnv = process.env): void {
  if (environment.OOMTUNE_HOME) environment.OOMTUNE_HOME = resolve(environment.OOMTUNE_HOME);
}

/** Where the machine's daemon listens, if there is one: OOMTUNE_SYSTEM_SOCKET; null: that is empty, for who wants none. */
export function systemSocket(): string | null {
  const { OOMTUNE_SYSTEM_SOCKET: path = '/run/oomtune/oomtune.sock' } = process.env;
  return path === '' ? null : resolve(path);
}

/** The same, without making it. Absolute: the Redis server and the jobs work in folders of their own. Throws OOMTUNE_HOME_UNUSABLE. */
export function homePath(): string {
  if (given !== null) return given;
  const { OOMTUNE_HOME, XDG_STATE_HOME } = process.env;
  if (OOMTUNE_HOME) return resolve(OOMTUNE_HOME);
  const state = XDG_STATE_HOME && isAbsolute(XDG_STATE_HOME) ? XDG_STATE_HOME : null; // a relative one is invalid by XDG's own rule
  return resolve(state ?? join(userFolder(), '.local', 'state'), 'oomtune');
}

function userFolder(): string {
  try {
    return homedir();
  } catch (cause) {
    throw new OomtuneError(
      'OOMTUNE_HOME_UNUSABLE',
      'There is no folder for the state of oomtune: HOME is not set, and this user has no entry in /etc/passwd.',
      'Set OOMTUNE_HOME to a folder on a local disk that is yours.',
      { cause },
    );
  }
}

/** A folder below home, made on first use. */
export function stateFolder(...parts: string[]): string {
  let path = homeFolder();
  for (const part of parts) path = privateFolder(join(path, part));
  return path;
}

export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(PACKAGE_ROOT, 'package.json'), 'utf8')) as { version: string };
  return version;
}
