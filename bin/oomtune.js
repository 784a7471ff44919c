#!/usr/bin/env -S node --
// The dashes above keep Node's own options out of our command line: Node 20 would read `--env-file` as its own.
import { existsSync } from 'node:fs';
import module from 'node:module';

// Compiled code is kept between starts where Node can (22.1 and newer): the verbs start faster.
module.enableCompileCache?.();

const main = new URL('../dist/program/main.js', import.meta.url);
if (existsSync(main)) {
  await import(main.href);
} else {
  const error = {
    code: 'OOMTUNE_NATIVE_MISSING',
    message: 'oomtune is not built yet.',
    remedy: 'Run `npm run setup` in its folder.',
  };
  if (process.argv.includes('--json')) process.stdout.write(`${JSON.stringify({ schema: 1, error })}\n`);
  else process.stderr.write(`oomtune: ${error.message}\n  ${error.remedy}\n  (${error.code})\n`);
  process.exitCode = 5;
}
