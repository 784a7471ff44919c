#!/usr/bin/env node
/** Linter, formatter and type checker of the Python files. By hand: `node scripts/setup/python-tools.mjs [--write]`. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT, say } from './say.mjs';
import { ensureVenv, findBase } from './venv.mjs';

const PINS = join(ROOT, 'scripts', 'setup', 'python-tools.txt');
/** Bytes that the environment takes, and what pip needs besides. */
const SPACE = 2 ** 30;
/** Seconds for the download and the installation. */
const PATIENCE = 10 * 60;
/** Minor versions of Python 3 that the tools run with; what they check is held to Python 3.8. */
const OLDEST = 9;
const NEWEST = 14;

/** `[name, argv]` of each check; none where the tools cannot be had, which is said aloud. */
export function pythonChecks() {
  const bin = ensureTools();
  if (bin === null) return [];
  return [
    ['ruff', [join(bin, 'ruff'), 'check', '.']],
    ['ruff format', [join(bin, 'ruff'), 'format', '--check', '.']],
    ['python types', [join(bin, 'basedpyright')]],
  ];
}

function ensureTools() {
  const base = findBase(OLDEST, NEWEST);
  const made =
    base === null
      ? { why: `no Python 3.${OLDEST} to 3.${NEWEST} with the module venv is here` }
      : ensureVenv({
          name: 'python-tools',
          what: 'what checks the Python files',
          base,
          lists: ['-r', PINS],
          files: [PINS],
          bytes: SPACE,
          seconds: PATIENCE,
          check: 'import ruff, basedpyright',
        });
  if (made.why) say(`NOT RUN: the linter, the formatter and the type checker of the Python files, since ${made.why}.`);
  return made.python ? join(made.python, '..') : null;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const write = process.argv.includes('--write');
  const bin = ensureTools();
  const ways = write
    ? [
        ['check', '--fix', '.'],
        ['format', '.'],
      ].map((way) => [join(bin ?? '', 'ruff'), ...way])
    : null;
  const steps = bin === null ? [] : (ways ?? pythonChecks().map(([, argv]) => argv));
  const failed = steps.filter(
    ([program, ...rest]) => spawnSync(program, rest, { cwd: ROOT, stdio: 'inherit' }).status !== 0,
  );
  process.exitCode = bin === null ? 5 : failed.length > 0 ? 1 : 0;
}
