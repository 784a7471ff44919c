import { closeSync, readSync } from 'node:fs';
import { openRegular } from '../../common/regular-file.js';

/** Bytes of a log's end that are looked at, and how many of its lines are shown. */
const TAIL_BYTES = 8192;
const LINES = 12;

/** The last lines of a log, blank ones left out; none where it cannot be read. */
export function lastLines(path: string): string[] {
  const file = openRegular(path);
  if (file === null) return []; // it was never made, or is gone
  const { fd, size } = file;
  try {
    const start = Math.max(0, size - TAIL_BYTES);
    const buffer = Buffer.alloc(Math.min(size, TAIL_BYTES));
    const text = buffer.toString('utf8', 0, readSync(fd, buffer, 0, buffer.length, start));
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    // The first line may have been cut.
    return lines.slice(start > 0 ? 1 : 0).slice(-LINES);
  } finally {
    closeSync(fd);
  }
}
