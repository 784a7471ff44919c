import { join } from 'node:path';
import { ROOT } from './say.mjs';
import { ensureTestVenv } from './venv.mjs';

const [REQUIREMENTS, CONSTRAINTS] = ['requirements.txt', 'constraints.txt'].map((name) =>
  join(ROOT, 'test', 'python', 'integrations', name),
);

/**
 * An interpreter with the notebooks, tuners and trackers that tests of the Python package run for real. It has no torch: the
 * frameworks' packages go on its path.
 */
export function ensureIntegrations() {
  return ensureTestVenv({
    tests: 'the tests with a notebook, tuners and trackers',
    name: 'integrations',
    what: 'the notebook, the tuners and the trackers that tests run for real',
    lists: ['-c', CONSTRAINTS, '-r', REQUIREMENTS],
    files: [REQUIREMENTS, CONSTRAINTS],
    bytes: 3 * 2 ** 30, // it takes 0.9 GiB
    seconds: 20 * 60, // one minute on two cores with a good network
    check: 'import optuna, ray, wandb, mlflow, nbclient',
  });
}
