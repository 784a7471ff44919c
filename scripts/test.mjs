#!/usr/bin/env node
/**
 * Set-up with what tests need besides, then the linters, the type checkers and the whole suite. `--quick` leaves out what
 * needs the frameworks' real packages (6 GiB, installed once a machine) and other versions of Node. Other arguments go to vitest.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { otherNodes } from './setup/nodes.mjs';
import { compileHook } from './setup/python.mjs';
import { pythonChecks } from './setup/python-tools.mjs';
import { Missing, ROOT, say } from './setup/say.mjs';
import { setup, withErrors } from './setup.mjs';

const NONE = { OOMTUNE_TEST_FRAMEWORKS: '', OOMTUNE_TEST_INTEGRATIONS: '', OOMTUNE_TEST_ENTRY_POINTS: '' };

/** What names the environments of real packages; they are made while other steps run, as half of that is waiting for the network. */
async function environments(quick) {
  if (quick) return NONE;
  const program = join(ROOT, 'scripts', 'setup', 'environments.mjs');
  const child = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [printed, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  if (code !== 0) throw new Missing('The environments of the tests could not be made.', 'The output above says why.');
  return JSON.parse(printed);
}

/** Whether a step ended well; null: it was interrupted. */
async function passes([program, ...words], env) {
  const child = spawn(program, words, { cwd: ROOT, stdio: 'inherit', env: { ...process.env, ...env } });
  const [code, signal] = await once(child, 'close');
  return signal === 'SIGINT' ? null : code === 0;
}

await withErrors(async () => {
  const args = process.argv.slice(2);
  const quick = args.includes('--quick');
  const python = setup({ tests: true });
  if (quick)
    say('NOT RUN (--quick): the tests with real frameworks and current torch, and those under other versions of Node.');
  compileHook(python.path);
  const made = environments(quick);
  made.catch(() => {}); // told where it is waited for
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
  for (const [name, argv, more] of steps) {
    const env = { OOMTUNE_PYTHON: python.path, ...more };
    if (name === 'tests') Object.assign(env, await made);
    say(`\n== ${name}`);
    const passed = await passes(argv, env);
    if (!passed) failed.push(name);
    if (passed === null) break;
  }
  if (failed.length === 0) say('\nAll checks and tests passed.');
  else {
    say(`\nFailed: ${failed.join(', ')}.`);
    process.exitCode = 1;
  }
});
