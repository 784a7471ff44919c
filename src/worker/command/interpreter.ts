import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { findExecutable } from '../../common/executable.js';
import { isPython, shebangOf } from './script.js';
import type { Program } from './types.js';

/** Wrappers that start the program in an environment of their own: `python` behind them is not the one on PATH. */
const ENVIRONMENTS = new Set(['uv', 'poetry', 'pipenv', 'pdm', 'rye', 'hatch', 'pixi', 'conda', 'mamba', 'micromamba']);

/** Finds the interpreter behind `uv run` and its kin, and by the shebang of launchers and console scripts; null: unknown. */
export function settleInterpreter(
  program: Program,
  command: readonly string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
): void {
  const wrapper = program.wrappers.find((name) => ENVIRONMENTS.has(name));
  if (wrapper) {
    const folder = environmentFolder(wrapper, command, cwd, env);
    const python = folder === null ? null : join(folder, 'bin', 'python');
    const found = python !== null && existsSync(python);
    program.interpreter = found ? { index: program.interpreter?.index ?? null, path: python } : null;
    if (found) program.executable = python;
    if (program.name && folder !== null) tellByShebang(program, join(folder, 'bin', program.name));
    return;
  }
  if (program.interpreter !== null || program.executable === null) return;
  const file = findExecutable(program.executable, env);
  if (file !== null) tellByShebang(program, file);
}

function tellByShebang(program: Program, file: string): void {
  const runs = shebangOf(file);
  if (runs === null || !isPython(runs)) return;
  program.kind = 'python';
  program.interpreter = { index: null, path: runs };
}

function environmentFolder(
  wrapper: string,
  command: readonly string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
): string | null {
  if (/conda$|^mamba$/.test(wrapper)) {
    const named = optionValue(command, ['-p', '--prefix']);
    if (named !== null) return resolve(cwd, named);
    const name = optionValue(command, ['-n', '--name']);
    const conda = findExecutable(wrapper, env);
    if (name === null || conda === null) return null;
    const root = dirname(dirname(conda));
    return name === 'base' ? root : join(root, 'envs', name);
  }
  // uv, pdm, rye and, if configured so, poetry keep it beside the project's file, perhaps in a parent folder.
  for (let folder = cwd; ; folder = dirname(folder)) {
    if (existsSync(join(folder, '.venv', 'bin', 'python'))) return join(folder, '.venv');
    if (folder === dirname(folder)) return null;
  }
}

function optionValue(command: readonly string[], names: string[]): string | null {
  const at = command.findIndex((word) => names.includes(word));
  return at < 0 ? null : (command[at + 1] ?? null);
}
