import { closeSync, constants, openSync, readSync } from 'node:fs';
import { basename } from 'node:path';

const PYTHON = /^(?:python|pypy)(?:\d+(?:\.\d+)*)?$/;

/** The interpreter that a file's shebang names; null: none. `/usr/bin/env python3` gives `python3`. */
export function shebangOf(path: string): string | null {
  const shebang = /^#!\s*(\S+)(?:\s+(?:-S\s+)?(\S+))?/.exec(firstLine(path));
  if (!shebang) return null;
  return basename(shebang[1] as string) === 'env' ? (shebang[2] ?? null) : (shebang[1] as string);
}

export function isPython(path: string): boolean {
  return PYTHON.test(basename(path));
}

function firstLine(path: string): string {
  try {
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK); // a pipe would wait for a writer
    try {
      const buffer = Buffer.alloc(256);
      const read = readSync(file, buffer, 0, buffer.length, 0);
      return buffer.subarray(0, read).toString('latin1').split('\n', 1)[0] as string;
    } finally {
      closeSync(file);
    }
  } catch {
    return ''; // a folder, or not ours to read: nothing is known of it
  }
}
