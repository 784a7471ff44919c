import type { Automaton, Cursor } from './automaton.js';

/** One line, or the part of it between two carriage returns, or a piece of one that has no end. */
export interface RawLine {
  text: string;
  /** 1-based, as an editor counts: by line feeds. */
  number: number;
  /** It came to its end: the log was not cut off within it. */
  whole: boolean;
}

/** Takes the lines that may matter. */
export interface LineSink {
  /** Returns true if the line matters: the lines after it will be read too. */
  line(line: RawLine): boolean;
  /** Lines were left out here. */
  gap(): void;
}

const CAPACITY = 2 << 20;
/** What most logs need; to clear all of it for each took longer than to read them. */
const FIRST_CAPACITY = 64 << 10;
/** The end of a log is read whole, however dull it looks. */
const TAIL = 256 << 10;
const LINES_BEFORE = 40;
const BYTES_BEFORE = 12 << 10;
const LINES_AFTER = 240;
const BYTES_AFTER = 128 << 10;
/**
 * A message that comes again and again is read every time for its first times, then only as far as this goes: bytes at
 * the start, and this part of what was skimmed. So a log that is nothing but errors takes no longer than any other.
 */
const FREE_BYTES = 3 << 18;
const PART_READ = 1 / 160;
const FIRST_TIMES = 40;
/** Lines and bytes that are read after one that is still news when that much has been read. */
const SHORT_LINES = 40;
const SHORT_BYTES = 16 << 10;
/** A line without end is read in pieces of this size. */
const LONGEST_PIECE = 16 << 10;

/** Reads a log of any length in bounded memory: an automaton skims it, and only what is near its finds, and the end, become lines. */
export class Scanner {
  private buffer = Buffer.from(new ArrayBuffer(FIRST_CAPACITY));
  private end = 0;
  /** Lines before this position are handed on (or given up). */
  private emitted = 0;
  /** Skimmed up to here. */
  private skimmed = 0;
  private readonly cursor: Cursor = { state: 0, literal: 0, near: false };
  /** How often each literal was found. */
  private readonly seen = new Map<number, number>();
  /** Bytes that may still be read line by line for messages that are no news. */
  private allowance = FREE_BYTES;
  /** What is left of the open window; 0: skimming. */
  private linesLeft = LINES_AFTER;
  private bytesLeft = BYTES_AFTER;
  private counted = 0;
  private lineNumber = 1;
  private skipped = false;

  constructor(
    private readonly automaton: Automaton,
    private readonly sink: LineSink,
  ) {}

  push(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; ) {
      if (this.end === CAPACITY) this.compact();
      this.makeRoom(chunk.length - at);
      const take = Math.min(chunk.length - at, CAPACITY - this.end);
      this.buffer.set(chunk.subarray(at, at + take), this.end);
      this.end += take;
      at += take;
      this.advance(false);
    }
  }

  /** For so many bytes more, or as many as it may hold. */
  private makeRoom(bytes: number): void {
    let capacity = this.buffer.length;
    while (capacity < CAPACITY && capacity < this.end + bytes) capacity *= 2;
    if (capacity === this.buffer.length) return;
    const larger = Buffer.from(new ArrayBuffer(capacity));
    larger.set(this.buffer.subarray(0, this.end));
    this.buffer = larger;
  }

  /** Hands on the end of the log. */
  finish(): void {
    this.advance(true);
    if (this.linesLeft > 0) return;
    const from = Math.max(this.emitted, this.end - TAIL);
    this.openAt(from === this.emitted ? from : this.lineStart(from, this.end));
    this.linesLeft = Number.POSITIVE_INFINITY;
    this.bytesLeft = Number.POSITIVE_INFINITY;
    this.emitLines(true);
  }

  private advance(last: boolean): void {
    for (;;) {
      if (this.linesLeft > 0) {
        this.emitLines(last);
        if (this.linesLeft > 0) return;
        this.skimmed = this.emitted;
        this.cursor.state = 0;
      }
      const hit = this.automaton.find(this.buffer, this.skimmed, this.end, this.cursor);
      const to = hit < 0 ? this.end : hit;
      this.allowance += (to - this.skimmed) * PART_READ;
      this.skimmed = to;
      if (hit < 0) return;
      if (!this.isNews(this.cursor.literal) && this.allowance <= 0) continue;
      this.openAt(this.windowStart(hit - 1));
      this.linesLeft = this.allowance > 0 ? LINES_AFTER : SHORT_LINES;
      this.bytesLeft = this.allowance > 0 ? BYTES_AFTER : SHORT_BYTES;
    }
  }

  private isNews(literal: number): boolean {
    const times = (this.seen.get(literal) ?? 0) + 1;
    this.seen.set(literal, times);
    return times <= FIRST_TIMES;
  }

  /** Moves what may still be needed to the front of the buffer. */
  private compact(): void {
    const keep = this.linesLeft > 0 ? this.emitted : Math.max(this.emitted, this.end - TAIL);
    this.countTo(keep);
    if (keep > this.emitted) this.skipped = true;
    this.buffer.copyWithin(0, keep, this.end);
    this.end -= keep;
    this.skimmed = Math.max(0, this.skimmed - keep);
    this.emitted = Math.max(0, this.emitted - keep);
    this.counted = 0;
  }

  private openAt(position: number): void {
    if (this.skipped || position > this.emitted) this.sink.gap();
    this.skipped = false;
    this.countTo(position);
    this.emitted = position;
  }

  /** Hands on whole lines until the window closes or the buffer ends; with `last` also the unfinished one. */
  private emitLines(last: boolean): void {
    const { buffer } = this;
    while (this.linesLeft > 0 && this.emitted < this.end) {
      const from = this.emitted;
      const limit = Math.min(this.end, from + LONGEST_PIECE);
      let to = lineBreak(buffer, from, limit);
      let next = to + 1;
      let isLine = true;
      if (to < 0) {
        if (limit < from + LONGEST_PIECE && !last) return;
        to = limit;
        next = limit;
        isLine = false;
      } else if (buffer[to] === 13) {
        // A carriage return at the end of what has come may be half of a CRLF.
        if (next === this.end && !last) return;
        if (buffer[next] === 10 && next < this.end) next += 1;
        else isLine = false;
      }
      const number = this.lineNumber;
      if (next > to && buffer[next - 1] === 10) this.lineNumber += 1;
      this.counted = next;
      this.emitted = next;
      this.bytesLeft -= next - from;
      this.allowance -= next - from;
      if (isLine) this.linesLeft -= 1;
      if (this.bytesLeft <= 0) this.linesLeft = 0;
      if (to > from || isLine) {
        const noted = this.sink.line({ text: buffer.toString('utf8', from, to), number, whole: next > to });
        if (noted && this.allowance > 0 && this.linesLeft < LINES_AFTER) {
          this.linesLeft = LINES_AFTER;
          this.bytesLeft = BYTES_AFTER;
        }
      }
    }
  }

  /** Start of the line that stands some lines before `position`. */
  private windowStart(position: number): number {
    const floor = Math.max(this.emitted, position - BYTES_BEFORE);
    let at = position;
    for (let lines = 0; lines <= LINES_BEFORE && at > floor; lines++) {
      const found = this.buffer.subarray(floor, at).lastIndexOf(10);
      if (found < 0) return this.emitted >= floor ? this.emitted : this.lineStart(floor, position);
      at = floor + found;
    }
    return at > floor || this.buffer[at] === 10 ? at + 1 : at;
  }

  /** Start of the first line that begins at or after `from`; `from` itself if none begins before `to`. */
  private lineStart(from: number, to: number): number {
    const found = lineBreak(this.buffer, from, to);
    return found < 0 ? from : found + 1;
  }

  private countTo(position: number): void {
    if (position <= this.counted) return;
    this.lineNumber += countLines(this.buffer, this.counted, position);
    this.counted = position;
  }
}

/** Line feeds in buffer[from, to), a word of four bytes at a time: few words hold one. */
function countLines(buffer: Buffer, from: number, to: number): number {
  let lines = 0;
  let i = from;
  for (; i < to && i % 4 !== 0; i++) if (buffer[i] === 10) lines += 1;
  const words = new Int32Array(buffer.buffer, buffer.byteOffset, buffer.length >> 2);
  const last = to >> 2;
  let word = i >> 2;
  for (; word < last; word++) {
    const x = (words[word] as number) ^ 0x0a0a0a0a;
    if (((x - 0x01010101) & ~x & 0x80808080) === 0) continue;
    for (let k = word * 4; k < word * 4 + 4; k++) if (buffer[k] === 10) lines += 1;
  }
  for (i = Math.max(i, word * 4); i < to; i++) if (buffer[i] === 10) lines += 1;
  return lines;
}

/** First line feed or carriage return in buffer[from, to), or -1. */
function lineBreak(buffer: Uint8Array, from: number, to: number): number {
  for (let i = from; i < to; i++) {
    const byte = buffer[i] as number;
    if (byte === 10 || byte === 13) return i;
  }
  return -1;
}
