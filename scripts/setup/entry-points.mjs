import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './say.mjs';
import { ensureTestVenv } from './venv.mjs';

const LISTS = join(ROOT, 'test', 'frameworks', 'entry-points');

/**
 * The folders with the console scripts of what is pinned in test/frameworks/entry-points, each in an environment of its own, as
 * `NAME=FOLDER` with commas. What cannot be had is not among them. They have no torch: the frameworks' packages go on their path.
 */
export function ensureEntryPoints() {
  const made = [];
  for (const file of readdirSync(LISTS).filter((one) => one.endsWith('.txt'))) {
    const name = file.replace(/\.txt$/, '');
    const list = join(LISTS, file);
    const python = ensureTestVenv({
      tests: `the tests that start ${name} by its console script`,
      name: `entry-${name}`,
      what: `${name}, whose console script tests start`,
      lists: ['--no-deps', '-r', list],
      files: [list],
      bytes: 2 ** 30,
      seconds: 10 * 60, // half a minute on two cores with a good network
      check: `import importlib.metadata; importlib.metadata.version("${name}")`,
    });
    if (python !== null) made.push(`${name}=${join(python, '..')}`);
  }
  return made.join(',');
}

if (process.argv[1] === import.meta.filename) process.stdout.write(`${ensureEntryPoints()}\n`);
