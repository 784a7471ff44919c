import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
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
export const executableOf = (word: string, cwd: string): string => (word.includes('/') ? resolve(cwd, word) : word);

/** The name of a script without folders and ending. */
export const stemOf = (path: string): string => basename(path).replace(/\.[A-Za-z0-9]+$/, '') || 'job';

const PYTHON = /^(?:python|pypy)(?:\d+(?:\.\d+)*)?$/;

/** The interpreter that a file's shebang names; null: none. `/usr/bin/env python3` gives `python3`. */
export function shebangOf(path: string): string | null {
  const shebang = /^#!\s*(\S+)(?:\s+(?:-S\s+)?(\S+))?/.exec(head(path, 256)?.split('\n', 1)[0] ?? '');
  if (!shebang) return null;
  return basename(shebang[1] as string) === 'env' ? (shebang[2] ?? null) : (shebang[1] as string);
}

export const isPython = (path: string): boolean => PYTHON.test(basename(path));

/** The beginning of a file, a character a byte; null: a folder, not there, or not ours to read. */
export function head(path: string, bytes: number): string | null {
  try {
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK); // a pipe would wait for a writer
    try {
      const buffer = Buffer.allocUnsafe(Math.min(bytes, fstatSync(file).size));
      return buffer.subarray(0, readSync(file, buffer, 0, buffer.length, 0)).toString('latin1');
    } finally {
      closeSync(file);
    }
  } catch {
    return null; // the launch will say so
  }
}
