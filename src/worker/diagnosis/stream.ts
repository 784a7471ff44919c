import { canonical, exitCode } from './canonical.js';
import type { Event, Mark } from './event.js';
import { parseException } from './exception.js';
import { readFigures } from './figures.js';
import { doubted, fits, fitsEdges } from './fit.js';
import { DONE_COUNTS } from './incident.js';
import { Life } from './life.js';
import type { Tagged } from './prefix.js';
import { type Progress, readProgress, readStage, saysDone, saysRecovered } from './progress.js';
import type { RawLine } from './scanner.js';
import type { Meaning, Signature, Signatures, Use } from './signatures.js';
import { isLogging, isProse, type Traceback, TracebackReader } from './traceback.js';
import { Trend } from './trend.js';
import { EXTENT, type Line, Window } from './window.js';
import { isMild, saysDealtWith, saysSupposed } from './words.js';

/** A literal that was found, to be judged when the lines after it are known. */
interface Pending {
  signature: Signature;
  literal: number;
  /** Index of the line where it begins, and what of that line stands before it. */
  index: number;
  offset: number;
  mark: Mark;
}

/** A traceback's exception, to be read by its class if no signature explains it. */
interface Raised {
  traceback: Traceback;
  index: number;
  mark: Mark;
}

/** A line that was broken off is at least as long, with what stood before it. */
const NARROWEST = 40;
/** So many characters of a signature's text at a line's end are its beginning, and no chance. */
const BROKEN_OFF = 8;
/** Lines at the beginning of an exception's message that may be empty. */
const BLANK_LINES = 4;

const evidenceOf = (text: string): string => text.trim().slice(0, 2000);

const CUT_OFF: Meaning = {
  class: 'user_error',
  role: 'wrapper',
  certain: false,
  cause: 'The log ends within a traceback; the error itself is missing.',
  advice: 'cut-off',
};

/** A warning of Python's, whose message goes on in the next line. */
const WARNS = /\w+Warning: .{0,300}:$/;

/** What a terminal, a quotation, a notebook or pytest puts before an error's name. */
const DECORATION = /^(?:[\s`*>"']{1,8}|E {3,7})(?=[A-Za-z_])/;

/** The lines of one process: finds what its messages say, once the lines around them are known. */
export class Stream {
  private readonly window = new Window();
  private readonly tracebacks: TracebackReader;
  /** Of the automaton, over the canonical text of line after line. */
  private state = 0;
  private pending: Pending[] = [];
  private raised: Raised[] = [];
  private ended: Traceback | null = null;
  readonly trend = new Trend();
  readonly life = new Life();
  readonly mark: Mark = { lines: 0, unfinished: false, step: -1, trained: false, done: false, stage: null };

  constructor(
    readonly key: string,
    private readonly known: Signatures,
    private readonly emit: (event: Event) => void,
  ) {
    this.tracebacks = new TracebackReader((traceback) => {
      this.ended = traceback;
    });
  }

  /** Whether the lines to come are wanted. */
  get hungry(): boolean {
    return this.tracebacks.open || this.pending.length > 0;
  }

  /** Whether a line without a tag, right behind one of this process, is the rest of the message that it began. */
  takes({ text, stamped }: Tagged): boolean {
    const before = this.window.at(this.window.end - 1);
    if (!before || before.text.length < NARROWEST || (stamped && !before.stamped)) return false;
    const open =
      this.tracebacks.inMessage ||
      this.known.automaton.depth(this.state) >= BROKEN_OFF ||
      this.pending.some((p) => p.index >= this.window.end - 2);
    return open && isProse(text) && !readProgress(text) && !saysDone(text);
  }

  /** True if the line holds anything of note. */
  line({ text: raw, stamped }: Tagged, { number, whole }: Pick<RawLine, 'number' | 'whole'>): boolean {
    this.ended = null;
    let { part, text } = this.tracebacks.feed(raw, number);
    if (part === 'message' && (this.life.knows(text) || saysDone(text) || saysRecovered(text) || readProgress(text))) {
      // No part of the exception's message: the job went on, or the next run began.
      this.tracebacks.reset();
      part = 'outside';
    }
    const index = this.window.end;
    const line: Line = {
      text,
      number,
      canonical: canonical(text) + exitCode(text),
      part,
      stamped,
      whole,
      traceback: this.ended ?? (part === 'message' ? this.tracebacks.last : null),
    };
    this.window.push(line);
    const noted = this.search(line, index);
    if (this.ended) this.raised.push({ traceback: this.ended, index, mark: { ...this.mark } });
    if (part === 'outside') {
      this.outside(line, index);
      if (!noted && !line.traceback) this.life.note(text, number);
    }
    this.settle(index - EXTENT);
    return noted || part !== 'outside';
  }

  /** Lines were left out, or the log ended: what is known is all that will be. */
  gap(): void {
    this.settle(Number.POSITIVE_INFINITY);
    this.tracebacks.reset();
    this.window.clear();
    this.state = 0;
  }

  /** The log ended; a traceback that stands open then lost the error that it was printed for. */
  finish(): void {
    const cut = this.window.at(this.window.end - 1);
    const open = cut?.part === 'frame' || cut?.part === 'header' ? this.tracebacks.unfinished : null;
    this.settle(Number.POSITIVE_INFINITY);
    if (open && cut) this.report(cut, 'traceback', CUT_OFF, { ...this.mark }, { rank: 1e6 });
    this.gap();
  }

  private search(line: Line, index: number): boolean {
    // The source lines of a traceback talk of errors; they are none.
    if (line.part === 'frame' || line.part === 'header') {
      this.state = 0;
      return true;
    }
    let noted = false;
    this.state = this.known.automaton.walk(line.canonical, this.state, (literal, end) => {
      const start = this.window.locate(index, end - (this.known.literals[literal] as string).length);
      if (!start) return;
      for (const use of this.known.uses[literal] as readonly Use[]) {
        if (!fitsEdges(use, start, line, end)) continue;
        noted = true;
        const { signature } = use;
        if (this.pending.some((p) => p.signature === signature && p.index === start.index)) continue;
        this.pending.push({ signature, literal, index: start.index, offset: start.offset, mark: { ...this.mark } });
      }
    });
    return noted;
  }

  private outside(line: Line, index: number): void {
    const progress = readProgress(line.text);
    if (progress) {
      this.advance(progress, line.text);
      return;
    }
    this.mark.stage = readStage(line.text) ?? this.mark.stage;
    // As good as two steps more: whatever came before, it did not end the job.
    const done = saysDone(line.text);
    if (done || saysRecovered(line.text)) this.mark.lines += DONE_COUNTS;
    if (done) this.mark.done = true;
    // An exception without its traceback: cut off, or interleaved with another's.
    const exception = parseException(line.text.replace(DECORATION, ''), false);
    if (!exception || /Warning$/.test(exception.name)) return;
    const { number } = line;
    const traceback: Traceback = {
      line: number,
      exceptionLine: number,
      frames: [],
      tail: '',
      exception,
      previous: null,
      relation: null,
      ignored: false,
    };
    line.traceback = traceback;
    this.raised.push({ traceback, index, mark: { ...this.mark } });
  }

  private advance({ kind, step, unfinished }: Progress, text: string): void {
    if (kind === 'train') this.trend.add(text, step);
    this.mark.stage = kind;
    this.mark.done = false;
    if (kind === 'train' || kind === 'eval') {
      this.mark.lines += 1;
      this.mark.unfinished = unfinished;
      if (step !== null) this.mark.step = Math.max(this.mark.step, step);
    }
    if (kind === 'train' && step !== 0) this.mark.trained = true;
  }

  /** Judges what began at or before line `limit`. */
  private settle(limit: number): void {
    while (this.pending.length > 0 && (this.pending[0] as Pending).index <= limit) {
      const { index } = this.pending[0] as Pending;
      const found = this.pending.filter((p) => p.index === index);
      this.pending = this.pending.filter((p) => p.index !== index);
      this.judge(index, found);
    }
    while (this.raised.length > 0 && (this.raised[0] as Raised).index <= limit) {
      this.judgeException(this.raised.shift() as Raised);
    }
  }

  private judge(index: number, found: Pending[]): void {
    const line = this.window.at(index);
    if (!line) return;
    const fitting = found
      .filter((place) => fits(place.signature, place, line.traceback, this.window))
      .sort((a, b) => a.signature.rank - b.signature.rank);
    const best = fitting[0];
    if (!best) return;
    const signature = doubted(best.signature, found, this.window)
      ? { ...best.signature, certain: false }
      : best.signature;
    const literals = new Set(fitting.map((f) => f.literal));
    const limit = Math.min(...this.pending.filter((p) => literals.has(p.literal)).map((p) => p.index));
    const message = this.window.message(best, limit);
    const figures = readFigures(
      fitting.flatMap((f) => f.signature.fields),
      message,
    );
    const before = line.canonical.slice(0, Math.min(...fitting.map((f) => f.offset)));
    const raised = line.traceback !== null;
    // A tip or a line of code: nothing happened.
    if (!raised && saysSupposed(before)) return;
    this.report(line, signature.id, signature, best.mark, {
      rank: signature.rank,
      figures,
      soft: (line.traceback?.frames ?? []).length === 0 && saysDealtWith(this.window.around(best, 0, 3)),
      mild: !raised && !signature.quiet && (isMild(line.text) || WARNS.test(this.window.at(index - 1)?.text ?? '')),
      phase: signature.phase,
      prelude: signature.prelude,
      after: signature.after,
      outranks: signature.outranks,
      passing: signature.passing && !raised,
    });
  }

  private judgeException({ traceback, index, mark }: Raised): void {
    const line = this.window.at(index);
    const { path, name } = traceback.exception;
    if (!line) return;
    const meaning = this.known.raised(path, name);
    line.traceback = traceback;
    const dealtWith = traceback.frames.length === 0 && saysDealtWith(line.canonical);
    const soft = dealtWith || isLogging(traceback.frames[0]);
    // What it says is not all there: what is missing may be what tells.
    const cut = !line.whole || (this.window.at(this.window.end - 1)?.traceback === traceback && !this.window.endsWhole);
    const evidence = this.sentence(line, index);
    this.report(line, `exception:${name}`, cut ? { ...meaning, certain: false } : meaning, mark, {
      rank: 1e6,
      soft,
      evidence,
    });
  }

  /** An exception's line, with the first of its message's lines that says something where it stands below it. */
  private sentence(line: Line, index: number): string {
    const own = evidenceOf(line.text);
    if (!own.endsWith(':')) return own;
    for (let at = index + 1; at < index + BLANK_LINES; at++) {
      const next = this.window.at(at);
      if (next === undefined || next.part !== 'message') break;
      if (next.text.trim() !== '') return evidenceOf(`${own} ${next.text.trim()}`);
    }
    return own;
  }

  private report(line: Line, id: string, meaning: Meaning, progress: Mark, more: Partial<Event>): void {
    this.emit({
      id,
      meaning,
      rank: 0,
      evidence: evidenceOf(line.text),
      line: line.number,
      key: this.key,
      figures: {},
      traceback: line.traceback,
      soft: false,
      mild: false,
      phase: null,
      prelude: false,
      after: [],
      outranks: null,
      passing: false,
      progress,
      ...more,
    });
  }
}
