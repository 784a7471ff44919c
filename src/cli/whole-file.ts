import { accessSync, closeSync, constants, openSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { writeWhole } from '../common/durable-file.js';
import { OomtuneError, usageError } from '../common/errors.js';
import { filesAnswer } from '../common/far-files.js';
import { isFolder } from '../common/home.js';

/** For a result that somebody waits for. */
const LONGEST_MS = 30_000;

/** Checks before hours of work that a file can be written. `what`: `report`. */
export function checkWritable(file: string, what: string): void {
  if (file === '') throw usageError(`The ${what} has no name.`, `Write the name of a file after --${what}.`);
  if (isFolder(file)) throw usageError(`The ${what} ${file} is a folder.`, 'Name a file in it.');
  const probe = join(dirname(file), `.${basename(file)}.${process.pid}`);
  try {
    if (isSpecial(file)) accessSync(file, constants.W_OK);
    else {
      closeSync(openSync(probe, 'wx', 0o600));
      rmSync(probe);
    }
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    throw usageError(
      `The ${what} ${file} cannot be written (${code}).`,
      'Name a file in a folder that exists and is yours.',
    );
  }
}

/** Writes the file whole or not at all; a device or a pipe gets the text. Throws OOMTUNE_FILES_SILENT, OOMTUNE_OUTPUT_FAILED. */
export async function writeResult(file: string, text: string | Buffer): Promise<void> {
  await filesAnswer([resolve(file)], LONGEST_MS, null);
  try {
    if (isSpecial(file)) writeInto(file, text);
    else writeWhole(file, text);
  } catch (cause) {
    const why = (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw new OomtuneError(
      'OOMTUNE_OUTPUT_FAILED',
      `The file ${file} cannot be written (${why}).`,
      'Name one where there is room, in a folder that stays while the command runs.',
      { cause },
    );
  }
}

function writeInto(file: string, text: string | Buffer): void {
  const fd = openSync(file, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY); // a pipe nobody reads is an error
  try {
    writeFileSync(fd, text);
  } finally {
    closeSync(fd);
  }
}

/** Whether it is a device, a pipe or a socket (`/dev/null`, `/dev/stderr`): a file must not be put in its place. */
function isSpecial(file: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false });
  return found !== undefined && !found.isFile() && !found.isDirectory();
}
