import { type Canonical, canonicalise } from './canonical.js';
import type { Event, Mark } from './event.js';
import { parseException } from './exception.js';
import { type Figures, readFigures } from './figures.js';
import { readProgress, readStage } from './progress.js';
import type { Signature, Signatures } from './signatures.js';
import { type Traceback, TracebackReader } from './traceback.js';
import { isMild, saysDealtWith, saysSupposed } from './words.js';

interface Line {
  text: string;
  number: number;
  canonical: Canonical;
  /** Position of its first character in the stream's canonical text. */
  at: number;
  part: 'outside' | 'header' | 'frame' | 'exception' | 'message';
  stamped: boolean;
  traceback: Traceback | null;
}

interface Pending {
  signature: Signature;
  /** Index of the line where the literal begins, and what of that line stands before it. */
  index: number;
  offset: number;
  literal: number;
  mark: Mark;
}

/** Lines that a message may go on for, and that are kept behind. */
const EXTENT = 14;
const KEPT = 64;

/** The lines of one process: finds what its messages say, once the lines around them are known. */
export class Stream {
  private lines: Line[] = [];
  /** Index (over the whole stream) of lines[0]. */
  private base = 0;
  private at = 0;
  private state = 0;
  private pending: Pending[] = [];
  private readonly tracebacks: TracebackReader;
  private closing: Traceback | null = null;
  /** Tracebacks whose meaning is still open, with the index of their exception's line. */
  private unexplained: { traceback: Traceback; index: number; mark: Mark }[] = [];
  readonly mark: Mark = { lines: 0, step: -1, trained: false, stage: null };

  constructor(
    readonly key: string,
    private readonly known: Signatures,
    private readonly emit: (event: Event) => void,
  ) {
    this.tracebacks = new TracebackReader((traceback) => {
      this.closing = traceback;
    });
  }

  /** Whether the lines to come are wanted. */
  get hungry(): boolean {
    return this.tracebacks.open || this.pending.length > 0;
  }

  /** True if the line holds anything of note. */
  line(raw: string, number: number, stamped: boolean): boolean {
    this.closing = null;
    const { part, text } = this.tracebacks.feed(raw, number);
    const index = this.base + this.lines.length;
    const line: Line = {
      text,
      number,
      canonical: canonicalise(text),
      at: this.at,
      part,
      stamped,
      traceback: this.closing ?? (part === 'message' ? this.tracebacks.last : null),
    };
    this.lines.push(line);
    this.at += line.canonical.text.length;
    const noted = this.search(line, index);
    if (this.closing) this.unexplained.push({ traceback: this.closing, index, mark: { ...this.mark } });
    if (part === 'outside') this.outside(line, index);
    this.settle(index - EXTENT);
    if (this.lines.length > KEPT + EXTENT) {
      const drop = this.lines.length - KEPT;
      this.lines.splice(0, drop);
      this.base += drop;
    }
    return noted || part !== 'outside';
  }

  /** Lines were left out, or the log ended: what is known is all that will be. */
  gap(): void {
    this.settle(Number.POSITIVE_INFINITY);
    this.tracebacks.reset();
    this.base += this.lines.length;
    this.lines = [];
    this.state = 0;
  }

  private search(line: Line, index: number): boolean {
    let noted = false;
    // The source lines of a traceback talk of errors; they are none.
    if (line.part === 'frame' || line.part === 'header') {
      this.state = 0;
      return true;
    }
    this.state = this.known.automaton.walk(line.canonical.text, this.state, (literal, end) => {
      const uses = this.known.uses[literal] as Signatures['uses'][number];
      const length = (this.known.literals[literal] as string).length;
      for (const use of uses) {
        const start = this.locate(index, end - length);
        if (!start) continue;
        if (use.wordStart && !wordBreak(start.line.canonical, start.offset)) continue;
        if (use.wordEnd && !wordBreak(line.canonical, end)) continue;
        noted = true;
        const twin = this.pending.some((p) => p.signature === use.signature && p.index === start.index);
        if (twin) continue;
        this.pending.push({
          signature: use.signature,
          index: start.index,
          offset: start.offset,
          literal,
          mark: { ...this.mark },
        });
      }
    });
    return noted;
  }

  /** The line and offset that lie `offset` characters after the start of line `index` (negative: in the lines before). */
  private locate(index: number, offset: number): { line: Line; index: number; offset: number } | null {
    let at = index;
    let rest = offset;
    for (;;) {
      const line = this.lines[at - this.base];
      if (!line || line.part === 'frame' || line.part === 'header') return null;
      if (rest >= 0) return { line, index: at, offset: rest };
      at -= 1;
      rest += this.lines[at - this.base]?.canonical.text.length ?? 0;
    }
  }

  private outside(line: Line, index: number): void {
    const progress = readProgress(line.text);
    if (progress) {
      this.mark.stage = progress.kind;
      if (progress.kind === 'train' || progress.kind === 'eval') {
        this.mark.lines += 1;
        if (progress.step !== null) this.mark.step = Math.max(this.mark.step, progress.step);
      }
      if (progress.kind === 'train' && progress.step !== 0) this.mark.trained = true;
      return;
    }
    this.mark.stage = readStage(line.text) ?? this.mark.stage;
    // An exception without its traceback: cut off, or interleaved with another's.
    const exception = /^[A-Za-z_]/.test(line.text) ? parseException(line.text, false) : null;
    if (!exception || /Warning$/.test(exception.name)) return;
    const traceback: Traceback = {
      line: line.number,
      exceptionLine: line.number,
      frames: [],
      exception,
      previous: null,
      relation: null,
      ignored: false,
    };
    line.traceback = traceback;
    this.unexplained.push({ traceback, index, mark: { ...this.mark } });
  }

  /** Judges what began at or before line `limit`. */
  private settle(limit: number): void {
    while (this.pending.length > 0 && (this.pending[0] as Pending).index <= limit) {
      const { index } = this.pending[0] as Pending;
      const same = this.pending.filter((p) => p.index === index);
      this.pending = this.pending.filter((p) => p.index !== index);
      this.judge(index, same);
    }
    while (this.unexplained.length > 0 && (this.unexplained[0]?.index ?? 0) <= limit) {
      const { traceback, index, mark } = this.unexplained.shift() as (typeof this.unexplained)[number];
      this.emitException(traceback, index, mark);
    }
  }

  private judge(index: number, found: Pending[]): void {
    const line = this.lines[index - this.base];
    if (!line) return;
    const fitting = found
      .filter(({ signature }) => this.fits(signature, index))
      .sort((a, b) => a.signature.rank - b.signature.rank);
    const best = fitting[0];
    if (!best) return;
    const { signature } = best;
    const message = this.message(index, fitting);
    const before = line.canonical.text.slice(0, Math.min(...fitting.map((f) => f.offset)));
    const raised = line.traceback !== null;
    this.emit({
      id: signature.id,
      meaning: signature,
      rank: signature.rank,
      evidence: line.text.trim().slice(0, 2000),
      line: line.number,
      key: this.key,
      figures: fitting.reduce<Figures>((all, f) => ({ ...readFigures(f.signature.fields, message), ...all }), {}),
      traceback: line.traceback,
      soft: !raised && (saysSupposed(before) || saysDealtWith(this.around(index, 2))),
      mild: !raised && isMild(line.text),
      phase: signature.phase,
      progress: best.mark,
    });
  }

  private emitException(traceback: Traceback, index: number, mark: Mark): void {
    const line = this.lines[index - this.base];
    const { path, name } = traceback.exception;
    const meaning =
      this.known.exceptions.get(path) ?? this.known.exceptions.get(name) ?? this.known.exceptions.get('Exception');
    if (!line || !meaning) return;
    this.emit({
      id: `exception:${name}`,
      meaning,
      rank: 1e6,
      evidence: line.text.trim().slice(0, 2000),
      line: line.number,
      key: this.key,
      figures: {},
      traceback,
      soft: false,
      mild: false,
      phase: null,
      progress: mark,
    });
  }

  private fits(signature: Signature, index: number): boolean {
    if (signature.with.length === 0 && signature.without.length === 0) return true;
    const scope = this.around(index, signature.near);
    if (signature.with.length > 0 && !signature.with.some((text) => scope.includes(text))) return false;
    return !signature.without.some((text) => scope.includes(text));
  }

  /** Canonical text of the lines around one, tracebacks' source lines left out. */
  private around(index: number, near: number): string {
    let text = '';
    for (let i = index - near; i <= index + near; i++) {
      const line = this.lines[i - this.base];
      if (line && line.part !== 'frame' && line.part !== 'header') text += line.canonical.text;
    }
    return text.slice(0, 16384);
  }

  /** Canonical text of the message that begins in line `index`: up to the next record, traceback or message of its kind. */
  private message(index: number, found: Pending[]): string {
    const literals = new Set(found.map((f) => f.literal));
    const next = Math.min(...this.pending.filter((p) => literals.has(p.literal)).map((p) => p.index));
    let text = '';
    for (let i = index; i < Math.min(index + EXTENT, next); i++) {
      const line = this.lines[i - this.base];
      if (!line) break;
      if (i > index && (line.part === 'header' || line.part === 'frame' || line.part === 'exception' || line.stamped))
        break;
      text += line.canonical.text;
    }
    return text.slice(0, 16384);
  }
}

function wordBreak(canonical: Canonical, at: number): boolean {
  if (at === 0 || at >= canonical.text.length || canonical.gap[at] === 1) return true;
  return !/[a-z0-9_]/.test(canonical.text[at - 1] as string) || !/[a-z0-9_]/.test(canonical.text[at] as string);
}
