import { endOfRegular } from '../common/regular-file.js';

/** The end of a log, and how many of its lines are shown. */
const TAIL_BYTES = 8192;
const LINES = 12;

/** A line of no more characters may be a part of any sentence. */
const SHORT = 8;

/** The most characters of a line that are quoted. */
const MOST_QUOTED = 200;

/** `; it said last: …`, of a log from byte `from` on; empty if it has no line. */
export function lastLine(path: string, from = 0): string {
  const said = lastLines(path, from).at(-1)?.trim().slice(0, MOST_QUOTED);
  return said === undefined ? '' : `; it said last: ${said}`;
}

/**
 * The last lines of a log that are not blank, of those from byte `from` on; none if it cannot be read. `evidence`: what the job died of: lines
 * after it are what libraries say as the interpreter ends.
 */
export function lastLines(path: string, from = 0, evidence = ''): string[] {
  const end = endOfRegular(path, TAIL_BYTES, from);
  if (end === null) return []; // it was never made, or is gone
  const lines = end.text.split('\n').filter((line) => line.trim() !== '');
  // The first line may have been cut.
  const last = lines.findLastIndex((line) => line.trim().length > SHORT && evidence.includes(line.trim()));
  return lines.slice(end.cut ? 1 : 0, last < 0 ? undefined : last + 1).slice(-LINES);
}
