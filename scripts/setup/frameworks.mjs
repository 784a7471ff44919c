import { join } from 'node:path';
import { ROOT, say } from './say.mjs';
import { ensureVenv, findBase } from './venv.mjs';

const [REQUIREMENTS, CONSTRAINTS] = ['requirements.txt', 'constraints.txt'].map((name) =>
  join(ROOT, 'test', 'frameworks', name),
);
/** Bytes that the environment takes (6.2 GiB with torch 2.15) and that pip needs besides while it unpacks. */
const SPACE = 10 * 2 ** 30;
/** Seconds for the download and the installation: four minutes on two cores with a good network. */
const PATIENCE = 40 * 60;
/** Oldest and newest minor version of Python 3 that the pinned versions have wheels for. */
const OLDEST = 11;
const NEWEST = 14;

/**
 * An interpreter with the frameworks that test/frameworks pins, made once a machine; null where it cannot be had, which is
 * said aloud, as the tests that need it do not run then.
 */
export function ensureFrameworks() {
  const base = findBase(OLDEST, NEWEST);
  const made =
    base === null
      ? { why: `no Python 3.${OLDEST} to 3.${NEWEST} with the module venv is here` }
      : ensureVenv({
          name: 'venv',
          what: 'the frameworks that tests run for real',
          base,
          lists: ['-c', CONSTRAINTS, '-r', REQUIREMENTS],
          files: [REQUIREMENTS, CONSTRAINTS],
          bytes: SPACE,
          seconds: PATIENCE,
          check: 'import torch, transformers, lightning',
        });
  if (made.why) say(`NOT RUN: the tests with real frameworks and current torch, since ${made.why}.`);
  return made.python ?? null;
}
