import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, say } from './say.mjs';
import { ensureVenv, findBase } from './venv.mjs';

const LISTS = join(ROOT, 'test', 'frameworks', 'entry-points');
/** Bytes that the largest of the environments takes, and that pip needs besides. */
const SPACE = 2 ** 30;
/** Seconds for one of them: half a minute on two cores with a good network. */
const PATIENCE = 10 * 60;
/** Minor versions of Python 3, as of the frameworks: these are put beside them on the path. */
const OLDEST = 11;
const NEWEST = 14;

/**
 * The folders with the console scripts of what is pinned in test/frameworks/entry-points, each in an environment of its own, as
 * `NAME=FOLDER` with commas. What cannot be had is said aloud, and is not among them. They have no torch: the frameworks' packages
 * go on their path.
 */
export function ensureEntryPoints() {
  const base = findBase(OLDEST, NEWEST);
  const made = [];
  for (const file of readdirSync(LISTS).filter((one) => one.endsWith('.txt'))) {
    const name = file.replace(/\.txt$/, '');
    const venv =
      base === null
        ? { why: `no Python 3.${OLDEST} to 3.${NEWEST} with the module venv is here` }
        : ensureVenv({
            name: `entry-${name}`,
            what: `${name}, whose console script tests start`,
            base,
            lists: ['--no-deps', '-r', join(LISTS, file)],
            files: [join(LISTS, file)],
            bytes: SPACE,
            seconds: PATIENCE,
            check: `import importlib.metadata; importlib.metadata.version("${name}")`,
          });
    if (venv.why) say(`NOT RUN: the tests that start ${name} by its console script, since ${venv.why}.`);
    else made.push(`${name}=${join(venv.python, '..')}`);
  }
  return made.join(',');
}

if (process.argv[1] === import.meta.filename) process.stdout.write(`${ensureEntryPoints()}\n`);
