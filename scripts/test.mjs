#!/usr/bin/env node
/**
 * Set-up with what tests need besides, then the linters, the type checkers and the whole suite. `--quick` leaves out what
 * needs the frameworks' real packages (6 GiB, installed once a machine) and other versions of Node. Other arguments go to vitest.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ensureEntryPoints } from './setup/entry-points.mjs';
import { ensureFrameworks } from './setup/frameworks.mjs';
import { ensureIntegrations } from './setup/integrations.mjs';
import { otherNodes } from './setup/nodes.mjs';
import { pythonChecks } from './setup/python-tools.mjs';
import { output, ROOT, say } from './setup/say.mjs';
import { setup, withErrors } from './setup.mjs';

await withErrors(() => {
  const args = process.argv.slice(2);
  const quick = args.includes('--quick');
  const python = setup({ tests: true });
  const frameworks = quick ? null : ensureFrameworks();
  const integrations = frameworks === null ? null : ensureIntegrations();
  const entryPoints = frameworks === null ? '' : ensureEntryPoints(frameworks);
  if (quick)
    say('NOT RUN (--quick): the tests with real frameworks and current torch, and those under other versions of Node.');
  // Each start of a script would else compile the hook anew where no bytecode may be written (PYTHONDONTWRITEBYTECODE)
  for (const path of new Set([python.path, ...(frameworks === null ? [] : [frameworks])]))
    output([path, '-m', 'compileall', '-q', join(ROOT, 'python')]);
  const node = (...parts) => [process.execPath, join(ROOT, 'node_modules', ...parts)];
  const vitest = node('vitest', 'vitest.mjs');
  const rest = args.filter((one) => one !== '--quick');
  const steps = [
    ['biome', [...node('@biomejs', 'biome', 'bin', 'biome'), 'check', '.']],
    ['types', [...node('typescript', 'bin', 'tsc'), '--noEmit', '-p', 'tsconfig.json']],
    ...pythonChecks(),
    ['clang-format, clang-tidy', [process.execPath, join(ROOT, 'scripts', 'setup', 'native-tools.mjs'), '--if-there']],
    ...(quick || rest.length > 0 ? [] : otherNodes(vitest[1])),
    ['tests', [...vitest, 'run', ...rest]],
  ];
  const failed = [];
  for (const [name, [program, ...words], more] of steps) {
    say(`\n== ${name}`);
    const done = spawnSync(program, words, {
      cwd: ROOT,
      stdio: 'inherit',
      env: {
        ...process.env,
        OOMTUNE_PYTHON: python.path,
        OOMTUNE_TEST_FRAMEWORKS: frameworks ?? '',
        OOMTUNE_TEST_INTEGRATIONS: integrations ?? '',
        OOMTUNE_TEST_ENTRY_POINTS: entryPoints,
        ...more,
      },
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
