import { closeSync, existsSync, readSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { openRegular } from '../common/regular-file.js';

const CHUNK = 64 * 1024;
/** The last lines are looked for in this much of a log, as much as the supervisor lets one file have. */
const MOST_TAIL = 64 * 1024 ** 2;

/** Reads a log as it grows, across its rotation (`log` becomes `log.1`). Holds at most one chunk in memory. */
export class LogFile {
  readonly #path: string;
  readonly #old: string;
  #fd: number | null = null;
  #inode = 0;
  #offset = 0;
  #begun = false;

  constructor(dir: string) {
    this.#path = join(dir, 'log');
    this.#old = join(dir, 'log.1');
  }

  /** Starts `lines` lines before the end instead of at the beginning. */
  seekTail(lines: number): void {
    const files = [this.#old, this.#path].filter((path) => existsSync(path));
    let wanted = lines;
    for (const path of files.reverse()) {
      const { offset, found } = tailOffset(path, wanted);
      this.#open(path, offset);
      wanted -= found;
      if (wanted <= 0) break;
    }
    this.#begun = true;
  }

  /** What has been written since the last call, chunk by chunk. */
  *read(): Generator<Buffer> {
    if (!this.#begun) {
      this.#open(existsSync(this.#old) ? this.#old : this.#path, 0);
      this.#begun = true;
    }
    for (;;) {
      if (this.#fd === null && !this.#open(this.#path, 0)) return;
      const buffer = Buffer.allocUnsafe(CHUNK);
      const count = readSync(this.#fd as number, buffer, 0, CHUNK, this.#offset);
      if (count > 0) {
        this.#offset += count;
        yield buffer.subarray(0, count);
        continue;
      }
      const now = statSync(this.#path, { throwIfNoEntry: false });
      if (now === undefined || now.ino === this.#inode) return;
      this.close(); // rotated: what was open has been read to its end
    }
  }

  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }

  #open(path: string, offset: number): boolean {
    this.close();
    const file = openRegular(path);
    if (file === null) return false; // not written yet, or already cleared away
    this.#fd = file.fd;
    this.#inode = file.inode;
    this.#offset = offset;
    return true;
  }
}

/** The offset of the last `lines` lines, and how many there are. */
function tailOffset(path: string, lines: number): { offset: number; found: number } {
  const file = openRegular(path);
  if (file === null) return { offset: 0, found: 0 };
  const { fd, size } = file;
  try {
    if (lines === 0) return { offset: size, found: 0 };
    const buffer = Buffer.allocUnsafe(CHUNK);
    let found = 0;
    const first = Math.max(0, size - MOST_TAIL);
    for (let end = size; end > first; ) {
      const start = Math.max(first, end - CHUNK);
      const count = readSync(fd, buffer, 0, end - start, start);
      for (let at = count - 1; at >= 0; at -= 1) {
        if (buffer[at] !== 0x0a || start + at === size - 1) continue;
        found += 1;
        if (found === lines) return { offset: start + at + 1, found };
      }
      end = start;
    }
    return { offset: first, found: size > 0 ? found + 1 : 0 };
  } finally {
    closeSync(fd);
  }
}
