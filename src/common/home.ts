import { readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
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

export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(PACKAGE_ROOT, 'package.json'), 'utf8')) as { version: string };
  return version;
}
