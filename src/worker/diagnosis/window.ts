import type { Canonical } from './canonical.js';
import type { Reading, Traceback } from './traceback.js';

/** A line of one process, as far as it is understood. */
export interface Line {
  text: string;
  number: number;
  canonical: Canonical;
  part: Reading['part'];
  /** A time stood before it. */
  stamped: boolean;
  /** The traceback whose exception or message it is. */
  traceback: Traceback | null;
}

/** Lines that a message may go on for. */
export const EXTENT = 14;
const KEPT = 64;
const LONGEST_MESSAGE = 16384;

/** The last lines of one process, by an index that goes on over all of them. */
export class Window {
  private lines: Line[] = [];
  private base = 0;

  /** Index that the next line will have. */
  get end(): number {
    return this.base + this.lines.length;
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
  locate(index: number, offset: number): { index: number; offset: number; line: Line } | null {
    let at = index;
    let rest = offset;
    for (;;) {
      const line = this.at(at);
      if (!line || isSource(line)) return null;
      if (rest >= 0) return { index: at, offset: rest, line };
      at -= 1;
      rest += this.at(at)?.canonical.text.length ?? 0;
    }
  }

  /** Canonical text of the lines around one; the source lines of tracebacks are left out. */
  around(index: number, before: number, after = before): string {
    let text = '';
    for (let i = index - before; i <= index + after; i++) {
      const line = this.at(i);
      if (line && !isSource(line)) text += line.canonical.text;
    }
    return text.slice(0, LONGEST_MESSAGE);
  }

  /** Canonical text of the message that begins in line `index`; it ends before line `limit`, or where another begins. */
  message(index: number, limit: number): string {
    const first = this.at(index);
    let text = '';
    for (let i = index; i < Math.min(index + EXTENT, limit); i++) {
      const line = this.at(i);
      if (!line) break;
      const other = line.part === 'exception' || isSource(line) || (line.stamped && !first?.stamped);
      if (i > index && other) break;
      text += line.canonical.text;
    }
    return text.slice(0, LONGEST_MESSAGE);
  }
}

function isSource(line: Line): boolean {
  return line.part === 'frame' || line.part === 'header';
}
