import type { ReadLine, Traceback } from './traceback.js';

/** A line of one process, as far as it is understood. */
export interface Line {
  text: string;
  number: number;
  /** The text as it is compared (see canonical.ts). */
  canonical: string;
  part: ReadLine['part'];
  /** A time stood before it. */
  stamped: boolean;
  /** It is not cut off by the end of the log. */
  whole: boolean;
  /** The traceback whose exception or message it is. */
  traceback: Traceback | null;
}

/** Lines that a message may go on for. */
export const EXTENT = 14;
const KEPT = 64;
const LONGEST_MESSAGE = 6000;
/** Characters of a line that count as near: before a place in it, after it, and of a line beside it. */
const NEAR_BEFORE = 800;
const NEAR_AFTER = 2400;
const NEAR_LINE = 1600;

/** The last lines of one process, by an index that goes on over all of them. */
export class Window {
  private lines: Line[] = [];
  private base = 0;

  /** Index that the next line will have. */
  get end(): number {
    return this.base + this.lines.length;
  }

  /** The last line is not cut off. */
  get endsWhole(): boolean {
    return this.lines.at(-1)?.whole ?? true;
  }

  push(line: Line): void {
    this.lines.push(line);
    if (this.lines.length <= 2 * KEPT) return;
    this.base += this.lines.length - KEPT;
    this.lines = this.lines.slice(-KEPT);
  }

  /** Nothing that comes has to do with what was. */
  clear(): void {
    this.base += this.lines.length;
    this.lines = [];
  }

  at(index: number): Line | undefined {
    return this.lines[index - this.base];
  }

  /** The place that lies `offset` characters after the start of line `index`; below zero: in the lines before it. */
  locate(index: number, offset: number): (Position & { line: Line }) | null {
    let at = index;
    let rest = offset;
    for (;;) {
      const line = this.at(at);
      if (!line || isSource(line)) return null;
      if (rest >= 0) return { index: at, offset: rest, line };
      at -= 1;
      rest += this.at(at)?.canonical.length ?? 0;
    }
  }

  /** Canonical text around a place; the source lines of tracebacks are left out. */
  around(position: Position, before: number, after = before): string {
    let text = '';
    for (let i = position.index - before; i <= position.index + after; i++) {
      const line = this.at(i);
      if (!line || isSource(line)) continue;
      text += i === position.index ? near(line, position.offset) : line.canonical.slice(0, NEAR_LINE);
    }
    return text;
  }

  /** Canonical text of the message at a position, up to `limit` or the next message; NUL-terminated unless the log was cut. */
  message(position: Position, limit: number): string {
    const first = this.at(position.index);
    let text = first ? near(first, position.offset) : '';
    let last = first;
    for (let i = position.index + 1; i < Math.min(position.index + EXTENT, limit); i++) {
      const line = this.at(i);
      if (!line || line.part === 'exception' || isSource(line) || (line.stamped && !first?.stamped)) break;
      text += line.canonical;
      last = line;
    }
    return text.slice(0, LONGEST_MESSAGE) + (last?.whole ? '\0' : '');
  }
}

/** A line by its index, and a character of its canonical text. */
export interface Position {
  index: number;
  offset: number;
}

function near(line: Line, offset: number): string {
  return line.canonical.slice(Math.max(0, offset - NEAR_BEFORE), offset + NEAR_AFTER);
}

function isSource(line: Line): boolean {
  return line.part === 'frame' || line.part === 'header';
}
