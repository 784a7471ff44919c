#!/usr/bin/env -S node --
import { existsSync } from 'node:fs';
import module from 'node:module';

// Compiled code is kept between starts where Node can (22.1 and newer): the verbs start faster.
module.enableCompileCache?.();

const main = new URL('../dist/cli/main.js', import.meta.url);
if (existsSync(main)) {
  await import(main.href);
} else {
  process.stderr.write(
    'oomtune: oomtune is not built yet.\n  Run `npm run setup` in its folder.\n  (OOMTUNE_NATIVE_MISSING)\n',
  );
  process.exitCode = 5;
}
