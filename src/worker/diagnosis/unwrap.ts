import { stripCodes } from './clean.js';
import { parseException } from './exception.js';
import { untag } from './prefix.js';
import { readProgress } from './progress.js';
import type { LineSink, RawLine } from './scanner.js';
import { opens, shapeOf } from './traceback.js';

/** Terminals are between so many columns wide. */
const NARROWEST = 50;
const WIDEST = 400;
/** Widths that a terminal, a pager or a form has most often. */
const USUAL = new Set([60, 64, 72, 78, 79, 80, 90, 96, 100, 110, 118, 119, 120, 128, 132, 140, 150, 160, 180, 200]);
/** Longer messages are cut up by nobody's terminal. */
const LONGEST = 16_000;
/** Records of one kind begin with the same so many characters; what was broken off does not begin as its beginning. */
const ALIKE = 8;

/** What ends a job stands in a line of its own, however long the one before it is. */
const ENDS =
  /^(?:killed|aborted|terminated?|segmentation fault|bus error|illegal instruction|out of memory|done|error|fatal|warning|\^c)\b|^(?:\/[\w/.-]{1,60}|python[\d.]*|ssh|git|pip|tar|cp|mv|rsync|curl|wget|docker|kernel|time|nohup|env|cuda|libc\+\+abi)(?:\[\d{1,8}\])?: /i;
/** Rules, rows of tables, boxes. */
const DRAWN = /^[\W_\d]*$|^[|│+╭╰┃].*[|│+╮╯┃]$/;

/** Joins lines that a terminal wrapped. A width counts if no line is longer, and lines of that length often go on in the next. */
export class Unwrapper implements LineSink {
  /** The longest line so far, and how often a line of its length went on in the next. */
  private width = 0;
  private broken = 0;
  /** Lines that may go on in the next one: all of them are `width` long. */
  private held: RawLine[] = [];

  constructor(private readonly sink: LineSink) {}

  line(raw: RawLine): boolean {
    const text = stripCodes(raw.text);
    const last = this.held.at(-1);
    if (last && goesOn(last.text, text) && this.held.length * this.width < LONGEST) {
      if (text.length === this.width) {
        this.held.push({ ...raw, text });
        return false;
      }
      if (text.length < this.width) return this.join({ ...raw, text });
    }
    const noted = this.release();
    if (!this.mayBreak(text)) return this.sink.line(raw) || noted;
    this.held = [{ ...raw, text }];
    return noted;
  }

  gap(): void {
    this.release();
    this.sink.gap();
  }

  /** The log has ended. */
  finish(): void {
    this.release();
  }

  /** Whether the line is as long as the terminal is wide. */
  private mayBreak(text: string): boolean {
    if (text.length > this.width) {
      this.width = text.length;
      this.broken = 0;
    }
    return text.length === this.width && text.length >= NARROWEST && text.length <= WIDEST && !DRAWN.test(text);
  }

  /** The line with which the held ones may end. */
  private join(end: RawLine): boolean {
    const { held } = this;
    const sure =
      held.length > 1 || this.broken > 1 || (USUAL.has(this.width) && withinSentence(held[0] as RawLine, end));
    if (withinSentence(held.at(-1) as RawLine, end)) this.broken += 1;
    if (!sure) {
      const noted = this.release();
      return this.sink.line(end) || noted;
    }
    this.broken += held.length - 1;
    this.held = [];
    const text = [...held, end].map((line) => line.text).join('');
    return this.sink.line({ text, number: (held[0] as RawLine).number, whole: end.whole });
  }

  /** They are lines of their own. */
  private release(): boolean {
    const { held } = this;
    this.held = [];
    // Full lines in a row of which the last is the end of the message, and as long by chance.
    const sure = held.length > 1 && this.broken > 1;
    const lines = sure
      ? [
          {
            ...(held[0] as RawLine),
            text: held.map(({ text }) => text).join(''),
            whole: (held.at(-1) as RawLine).whole,
          },
        ]
      : held;
    return lines.map((line) => this.sink.line(line)).includes(true);
  }
}

/** `next` can be what was broken off `full`: nothing begins in it. */
function goesOn(full: string, next: string): boolean {
  if (next.trim() === '' || /^\s{2}/.test(next) || DRAWN.test(next) || ENDS.test(next) || opens(next)) return false;
  if (shapeOf(full.slice(0, ALIKE)) === shapeOf(next.slice(0, ALIKE))) return false;
  if (/^[A-Z]/.test(next) && !/[\w/.:,(<"'=-]\s?$/.test(full)) return false;
  return !raises(next) && !isTagged(full, next) && readProgress(next) === null && readProgress(full) === null;
}

/** The last part of a broken name (`ResourceExhauste`, `dError: …`) is no exception's. */
function raises(text: string): boolean {
  const exception = parseException(text, false);
  return exception !== null && (exception.path !== exception.name || /^[A-Z_]/.test(exception.name));
}

/** Who wrote it stands before the line, in the form that it has before the other; `worker 0: ` may be said within a message. */
function isTagged(full: string, next: string): boolean {
  const { key, stamped } = untag(next);
  return stamped || (key !== '' && (untag(full).key === '' || full[0] === next[0]));
}

/** The break stands where no line ends by itself: within a word or a number, or before a small letter. */
function withinSentence({ text: full }: RawLine, { text: next }: RawLine): boolean {
  if (/\w$/.test(full) && /^\w/.test(next)) return true;
  if (/\d\.$/.test(full) && /^\d/.test(next)) return true;
  return !/[.!?;:]\s?$/.test(full) && /^ ?[a-z\d_(<[{"',./:-]/.test(next);
}
