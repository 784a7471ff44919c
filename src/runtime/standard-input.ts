import { closeSync, fstatSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { descriptor } from '../common/descriptor.js';
import { usageError } from '../common/errors.js';
import { homeFolder } from '../common/home.js';
import { loadNative } from './native.js';
import type { InputFile } from './types.js';

const STDIN = 0;
/** Bytes. */
const MOST_TEXT = 1 << 20;

/**
 * This process's stdin for the launches of one job, each of which is to read it from the beginning: a script (`python - < train.py`)
 * or its answers. Nothing is taken from it here, since the shell's loop around us may read it, too.
 */
export class StandardInput {
  private constructor(
    /** What any launch can read; null: nothing, or what only one can. */
    readonly file: InputFile | null,
    /** Somebody still writes into it, so that what a launch reads is lost for the next. */
    private readonly isOpen: boolean,
    private readonly peek: () => { bytes: Buffer; ended: boolean },
  ) {}

  static capture(): StandardInput {
    const { addon } = loadNative();
    const peek = () => addon.peekStream(STDIN);
    const is = fstatSync(STDIN);
    if (is.isFile()) return new StandardInput({ path: pathOf(STDIN), offset: descriptor(STDIN).position }, false, peek);
    if (!is.isFIFO() && !is.isSocket()) return new StandardInput(null, false, peek);
    const { bytes, ended } = peek();
    if (!ended || bytes.length === 0) return new StandardInput(null, !ended, peek);
    return new StandardInput({ path: kept(bytes), offset: 0 }, false, peek);
  }

  /** Null: none that can be read again, or more than any script has. */
  text(): string | null {
    if (this.file === null) return null;
    const fd = openSync(this.file.path, 'r');
    try {
      const buffer = Buffer.alloc(MOST_TEXT);
      const length = readSync(fd, buffer, 0, MOST_TEXT, this.file.offset);
      return length < MOST_TEXT ? buffer.toString('utf8', 0, length) : null;
    } finally {
      closeSync(fd);
    }
  }

  /** For a launch after one that had this process's own; null: it may have that, too. Throws OOMTUNE_USAGE where that has been read to its end. */
  again(): InputFile | null {
    if (this.file !== null || !this.isOpen) return this.file;
    const { bytes, ended } = this.peek();
    if (!ended || bytes.length > 0) return null;
    throw usageError(
      'The job has to be started again, and what was piped into it has been read.',
      'Give it as a file: oomtune run … -- COMMAND < FILE; or < /dev/null, if the job reads nothing.',
    );
  }
}

/** By this another process opens it, even one that has no name any more (a shell's here-document). */
const pathOf = (fd: number): string => `/proc/${process.pid}/fd/${fd}`;

/** Kept in a file without a name, which is gone with this process. */
function kept(bytes: Buffer): string {
  const path = join(homeFolder(), `stdin-${process.pid}`);
  rmSync(path, { force: true });
  const fd = openSync(path, 'wx+', 0o600);
  rmSync(path);
  try {
    for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return pathOf(fd);
}
