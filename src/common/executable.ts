import { existsSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';

/** A program's file, by PATH where its name is no path; null when there is none. */
export function findExecutable(name: string, { PATH = '' }: Record<string, string | undefined>): string | null {
  if (name.includes('/')) return existsSync(name) ? resolve(name) : null;
  const files = PATH.split(delimiter).flatMap((folder) => (folder === '' ? [] : [join(folder, name)]));
  return files.find((file) => existsSync(file)) ?? null;
}
