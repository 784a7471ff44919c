#!/usr/bin/env node
/** Set-up with what tests need besides, then the linter, the type checker and the whole suite. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT, say } from './setup/say.mjs';
import { setup, withErrors } from './setup.mjs';

await withErrors(() => {
  const python = setup({ tests: true });
  const bin = (...parts) => join(ROOT, 'node_modules', ...parts);
  const steps = [
    ['biome', [bin('@biomejs', 'biome', 'bin', 'biome'), 'check', '.']],
    ['types', [bin('typescript', 'bin', 'tsc'), '--noEmit', '-p', 'tsconfig.json']],
    ['tests', [bin('vitest', 'vitest.mjs'), 'run', ...process.argv.slice(2)]],
  ];
  const failed = [];
  for (const [name, args] of steps) {
    say(`\n== ${name}`);
    const done = spawnSync(process.execPath, args, {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...process.env, OOMTUNE_PYTHON: python.path },
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
