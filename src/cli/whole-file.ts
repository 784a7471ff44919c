import { closeSync, openSync, rmSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { writeWhole } from '../common/durable-file.js';
import { usageError } from '../common/errors.js';
import { filesAnswer } from '../common/far-files.js';
import { isFolder } from '../common/home.js';

/** What was worked for is done, and somebody waits for it. */
const LONGEST_MS = 30_000;

/** Hours of work must not end with a file that cannot be written: this is tried before the start. `what`: `report`. */
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

/** Whole or not at all: another program may be waiting for it. Throws OOMTUNE_FILES_SILENT where it would never come to an end. */
export async function writeResult(file: string, text: string): Promise<void> {
  await filesAnswer([resolve(file)], LONGEST_MS, null);
  writeWhole(file, text);
}
