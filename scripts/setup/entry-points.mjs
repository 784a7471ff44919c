import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ensureLibtorch } from './libtorch.mjs';
import { ROOT } from './say.mjs';
import { ensureTestVenv } from './venv.mjs';

const FOLDERS = join(ROOT, 'test', 'frameworks', 'entry-points');

/** What cannot stand beside the frameworks' environment, as it needs an older Python, and a torch of its own with that. */
const ALONE = { fairseq: { beside: null, oldest: 8, newest: 8, bytes: 6 * 2 ** 30 } };

/**
 * The folders with the programs of test/frameworks/entry-points as `NAME=FOLDER`, with commas: what is pinned there, each in an
 * environment of its own that sees the packages of `frameworks`, and a compiled one. What cannot be had is not among them.
 */
export function ensureEntryPoints(frameworks) {
  const made = [];
  for (const name of readdirSync(FOLDERS)) {
    const list = join(FOLDERS, name, 'requirements.txt');
    const program =
      name === 'libtorch'
        ? ensureLibtorch(frameworks, join(FOLDERS, name, 'train.cpp'))
        : ensureTestVenv({
            tests: `the tests that start ${name} by its console script`,
            name: `entry-${name}`,
            what: `${name}, whose console script tests start`,
            lists: ['--no-deps', '-r', list],
            files: [list],
            beside: frameworks,
            bytes: 2 ** 30,
            seconds: 10 * 60, // half a minute on two cores with a good network
            check: 'import torch',
            ...ALONE[name],
          });
    if (program !== null) made.push(`${name}=${join(program, '..')}`);
  }
  return made.join(',');
}
