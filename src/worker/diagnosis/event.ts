import type { Figures } from './figures.js';
import type { Meaning } from './signatures.js';
import type { Traceback } from './traceback.js';

/** One thing that went wrong, as the log tells it. */
export interface Event {
  /** Signature's id; `exception` for a traceback that no signature fits. */
  id: string;
  meaning: Meaning;
  /** Place of the signature in its file: the earlier, the more it says. */
  rank: number;
  /** The line that shows it, as printed (without terminal codes), and its number. */
  evidence: string;
  line: number;
  /** Which process wrote it (see Tagged.key). */
  key: string;
  figures: Figures;
  traceback: Traceback | null;
  /** The words around it say that it was dealt with, or only speak of the possibility. */
  soft: boolean;
  /** A log level of warning or below stands before it. */
  mild: boolean;
  phase: 'load' | 'eval' | 'save' | 'train' | null;
  /** Native code says it just before an exception that says less. */
  prelude: boolean;
  /** Signatures and classes that it is only a consequence of. */
  after: readonly string[];
  /** Who runs the job says it: see Signature. */
  outranks: 'signal' | 'exit' | null;
  /** Programs say it of what they get on without. */
  passing: boolean;
  /** What its process had got to. */
  progress: Mark;
}

/** How far a process had come. */
export interface Mark {
  /** Lines of progress so far. */
  lines: number;
  /** The last of them was a bar that is not full. */
  unfinished: boolean;
  /** Highest step shown; -1: none. */
  step: number;
  /** Whether any training step was seen. */
  trained: boolean;
  /** It had said that it was done, and made no progress since. */
  done: boolean;
  /** What it was last said to be doing. */
  stage: 'load' | 'train' | 'eval' | 'save' | null;
}

const FIRST = 256;
const LAST = 512;

/** Keeps the first and the last events: a log that repeats one a million times stays small. */
export class EventList {
  private readonly first: Event[] = [];
  private readonly ring: Event[] = [];
  private count = 0;

  add(event: Event): void {
    if (this.first.length < FIRST) this.first.push(event);
    else this.ring[this.count++ % LAST] = event;
  }

  /** In the order of the log. */
  all(): Event[] {
    return [...this.first, ...this.ring].sort((a, b) => a.line - b.line || a.rank - b.rank);
  }
}
