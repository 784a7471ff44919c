import { basename, resolve } from 'node:path';
import type { Program } from './types.js';

/** The word at `index` is the script; its arguments follow. */
export function setScript(command: readonly string[], index: number, cwd: string, program: Program): void {
  const path = command[index] as string;
  const absolute = resolve(cwd, path);
  program.script = { index, path, absolute, stem: stemOf(path) };
  program.argsStart = index + 1;
}

/** The path of an executable that is named by one; a bare name is looked for on PATH by whoever runs it. */
export function executableOf(word: string, cwd: string): string {
  return word.includes('/') ? resolve(cwd, word) : word;
}

/** The name of a script without folders and ending. */
export function stemOf(path: string): string {
  return basename(path).replace(/\.[A-Za-z0-9]+$/, '') || 'job';
}
