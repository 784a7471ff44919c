#!/usr/bin/env node
/**
 * Set-up with what tests need besides, then the linter, the type checker and the whole suite. `--quick` leaves out what
 * needs the frameworks' real packages (6 GiB, installed once a machine). Other arguments go to vitest.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ensureFrameworks } from './setup/frameworks.mjs';
import { ROOT, say } from './setup/say.mjs';
import { setup, withErrors } from './setup.mjs';

await withErrors(() => {
  const args = process.argv.slice(2);
  const quick = args.includes('--quick');
  const python = setup({ tests: true });
  const frameworks = quick ? null : ensureFrameworks();
  if (quick) say('NOT RUN (--quick): the tests with real frameworks and current torch.');
  const bin = (...parts) => join(ROOT, 'node_modules', ...parts);
  const steps = [
    ['biome', [bin('@biomejs', 'biome', 'bin', 'biome'), 'check', '.']],
    ['types', [bin('typescript', 'bin', 'tsc'), '--noEmit', '-p', 'tsconfig.json']],
    ['tests', [bin('vitest', 'vitest.mjs'), 'run', ...args.filter((one) => one !== '--quick')]],
  ];
  const failed = [];
  for (const [name, argv] of steps) {
    say(`\n== ${name}`);
    const done = spawnSync(process.execPath, argv, {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...process.env, OOMTUNE_PYTHON: python.path, OOMTUNE_TEST_FRAMEWORKS: frameworks ?? '' },
    });
    if (done.status !== 0) failed.push(name);
    if (done.signal === 'SIGINT') break;
  }
  if (failed.length === 0) say('\nAll checks and tests passed.');
  else {
    say(`\nFailed: ${failed.join(', ')}.`);
    process.exitCode = 1;
  }
});
