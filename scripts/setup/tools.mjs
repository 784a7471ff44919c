import { join } from 'node:path';
import { ROOT, say } from './say.mjs';
import { ensureVenv, findBase } from './venv.mjs';

/** Bytes that an environment takes, and what pip needs besides. */
const SPACE = 2 ** 30;
/** Seconds for the download and the installation. */
const PATIENCE = 10 * 60;
/** Minor versions of Python 3 that the tools run with, whatever what they check is held to. */
const OLDEST = 9;
const NEWEST = 14;

/**
 * The folder of tools from Python's index, pinned in `NAME.txt` beside this file, or null where they cannot be had, which is
 * said aloud: `tools` are what is not run then, of the `kind` of files. `check` is a statement that must run in their environment.
 */
export function ensureTools({ name, tools, kind, check }) {
  const pins = join(ROOT, 'scripts', 'setup', `${name}.txt`);
  const base = findBase(OLDEST, NEWEST, { headers: false });
  const made =
    base === null
      ? { why: `no Python 3.${OLDEST} to 3.${NEWEST} is here` }
      : ensureVenv({
          name,
          what: `what checks the ${kind} files`,
          base,
          lists: ['-r', pins],
          files: [pins],
          bytes: SPACE,
          seconds: PATIENCE,
          check,
        });
  if (made.why) say(`NOT RUN: ${tools} of the ${kind} files, since ${made.why}.`);
  return made.python ? join(made.python, '..') : null;
}
