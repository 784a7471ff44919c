import { join } from 'node:path';
import { ROOT } from './say.mjs';
import { ensureTestVenv } from './venv.mjs';

const [REQUIREMENTS, CONSTRAINTS] = ['requirements.txt', 'constraints.txt'].map((name) =>
  join(ROOT, 'test', 'frameworks', name),
);

/** An interpreter with the frameworks that test/frameworks pins, made once a machine. */
export function ensureFrameworks() {
  return ensureTestVenv({
    tests: 'the tests with real frameworks and current torch',
    name: 'venv',
    what: 'the frameworks that tests run for real',
    lists: ['-c', CONSTRAINTS, '-r', REQUIREMENTS],
    files: [REQUIREMENTS, CONSTRAINTS],
    bytes: 10 * 2 ** 30, // it takes 6.2 GiB with torch 2.15
    seconds: 40 * 60, // four minutes on two cores with a good network
    check: 'import torch, transformers, lightning',
  });
}
