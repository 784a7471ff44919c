import { join } from 'node:path';
import { ROOT, say } from './say.mjs';
import { ensureVenv, findBase } from './venv.mjs';

const [REQUIREMENTS, CONSTRAINTS] = ['requirements.txt', 'constraints.txt'].map((name) =>
  join(ROOT, 'test', 'python', 'integrations', name),
);
/** Bytes that the environment takes (0.9 GiB), and that pip needs besides while it unpacks. */
const SPACE = 3 * 2 ** 30;
/** Seconds for the download and the installation: one minute on two cores with a good network. */
const PATIENCE = 20 * 60;
/** Minor versions of Python 3, as of the frameworks: these are put beside them on the path. */
const OLDEST = 11;
const NEWEST = 14;

/**
 * An interpreter with the notebooks, tuners and trackers that tests of the Python package run for real, made once a machine; null
 * where it cannot be had, which is said aloud. It has no torch: the frameworks' packages go on its path.
 */
export function ensureIntegrations() {
  const base = findBase(OLDEST, NEWEST);
  const made =
    base === null
      ? { why: `no Python 3.${OLDEST} to 3.${NEWEST} with the module venv is here` }
      : ensureVenv({
          name: 'integrations',
          what: 'the notebook, the tuners and the trackers that tests run for real',
          base,
          lists: ['-c', CONSTRAINTS, '-r', REQUIREMENTS],
          files: [REQUIREMENTS, CONSTRAINTS],
          bytes: SPACE,
          seconds: PATIENCE,
          check: 'import optuna, ray, wandb, mlflow, nbclient',
        });
  if (made.why) say(`NOT RUN: the tests with a notebook, tuners and trackers, since ${made.why}.`);
  return made.python ?? null;
}
