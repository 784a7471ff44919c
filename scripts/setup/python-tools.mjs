#!/usr/bin/env node
/** Linter, formatter and type checker of the Python files. By hand: `node scripts/setup/python-tools.mjs [--write]`. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT } from './say.mjs';
import { ensureTools } from './tools.mjs';

const TOOLS = {
  name: 'python-tools',
  tools: 'the linter, the formatter and the type checker',
  kind: 'Python',
  check: 'import ruff, basedpyright',
};

/** `[name, argv]` of each check; none where the tools cannot be had, which is said aloud. */
export function pythonChecks() {
  const bin = ensureTools(TOOLS);
  if (bin === null) return [];
  return [
    ['ruff', [join(bin, 'ruff'), 'check', '.']],
    ['ruff format', [join(bin, 'ruff'), 'format', '--check', '.']],
    ['python types', [join(bin, 'basedpyright')]],
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const write = process.argv.includes('--write');
  const bin = ensureTools(TOOLS);
  const ways = write
    ? [
        ['check', '--fix', '.'],
        ['format', '.'],
      ].map((way) => [join(bin ?? '', 'ruff'), ...way])
    : null;
  const steps = bin === null ? [] : (ways ?? pythonChecks().map(([, argv]) => argv));
  const failed = steps.filter(
    ([program, ...rest]) => spawnSync(program, rest, { cwd: ROOT, stdio: 'inherit' }).status !== 0,
  );
  process.exitCode = bin === null ? 5 : failed.length > 0 ? 1 : 0;
}
