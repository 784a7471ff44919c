import { chmodSync, mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder that the package was installed to: config/, python/, native/ and examples/ stand in it. */
export const PACKAGE_ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Makes a folder (and its parents) that only this user can enter, and returns its path. */
export function privateFolder(path: string): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  chmodSync(path, 0o700); // the umask may have widened nothing, but an older folder may be open
  return path;
}

/**
 * Where oomtune keeps its state: `OOMTUNE_HOME`, else `$XDG_STATE_HOME/oomtune`, else `~/.local/state/oomtune`.
 * Holds redis/, runs/ and daemon/, all 0700.
 */
export function homeFolder(): string {
  const { OOMTUNE_HOME, XDG_STATE_HOME } = process.env;
  return privateFolder(OOMTUNE_HOME || join(XDG_STATE_HOME || join(homedir(), '.local', 'state'), 'oomtune'));
}

/** A folder below home, made on first use. */
export function stateFolder(...parts: string[]): string {
  let path = homeFolder();
  for (const part of parts) path = privateFolder(join(path, part));
  return path;
}
