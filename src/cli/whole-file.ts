import { closeSync, openSync, rmSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { writeWhole } from '../common/durable-file.js';
import { usageError } from '../common/errors.js';
import { filesAnswer } from '../common/far-files.js';
import { isFolder } from '../common/home.js';

/** For a result that somebody waits for. */
const LONGEST_MS = 30_000;

/** Checks before hours of work that a file can be written. `what`: `report`. */
export function checkWritable(file: string, what: string): void {
  if (isFolder(file)) throw usageError(`The ${what} ${file} is a folder.`, 'Name a file in it.');
  const probe = join(dirname(file), `.${basename(file)}.${process.pid}`);
  try {
    closeSync(openSync(probe, 'wx', 0o600));
    rmSync(probe);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    throw usageError(
      `The ${what} ${file} cannot be written (${code}).`,
      'Name a file in a folder that exists and is yours.',
    );
  }
}

/** Writes the file whole or not at all. Throws OOMTUNE_FILES_SILENT if its file system does not answer. */
export async function writeResult(file: string, text: string | Buffer): Promise<void> {
  await filesAnswer([resolve(file)], LONGEST_MS, null);
  writeWhole(file, text);
}
