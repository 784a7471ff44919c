import { behindBar, openEnvelope, stripCodes } from './clean.js';
import { type Event, EventList, type Mark } from './event.js';
import type { Life } from './life.js';
import { type Tagged, untag } from './prefix.js';
import type { LineSink, RawLine } from './scanner.js';
import type { Signatures } from './signatures.js';
import { Stream } from './stream.js';

/** More writers than this are read as one. */
const MOST_STREAMS = 512;

/** What a log tells, read line by line; the processes that wrote it are kept apart. */
export class Reader implements LineSink {
  private readonly streams = new Map<string, Stream>();
  private readonly list = new EventList();
  /** The last lines that say anything, for a failure that left no better word. */
  private lastWords: LastWord[] = [];
  private hungry = 0;
  /** Who wrote the last line. */
  private last: Stream | null = null;
  private several = false;
  private rootRank: number | null = null;
  /** Lines left in which a launcher's summary may name the rank that failed first. */
  private summary = 0;

  constructor(private readonly known: Signatures) {}

  line(raw: RawLine): boolean {
    let noted = false;
    const clean = stripCodes(raw.text);
    let said = '';
    for (const text of (openEnvelope(clean) ?? [clean]).flatMap(behindBar)) {
      const tagged = this.untagged(text) ?? untag(text);
      said = tagged.text.trim() || said;
      this.launcher(tagged.text);
      const stream = this.writer(tagged);
      if (stream.line(tagged, raw)) noted = true;
      if (stream.hungry) this.hungry = 64;
    }
    if (clean.trim() !== '') {
      this.lastWords.push({ text: clean.trim().slice(0, 2000), said: said.slice(0, 2000), line: raw.number });
      if (this.lastWords.length > 12) this.lastWords.shift();
    }
    if (this.hungry > 0) this.hungry -= 1;
    return noted || this.hungry > 0;
  }

  gap(): void {
    for (const stream of this.streams.values()) stream.gap();
    this.last = null;
    this.lastWords = [];
  }

  /** Everything that was found, in the order of the log. Call once, at its end. */
  finish(): LogContents {
    for (const stream of this.streams.values()) stream.finish();
    return {
      events: this.list.all(),
      marks: new Map([...this.streams].map(([key, stream]) => [key, stream.mark])),
      lastWords: this.lastWords,
      several: this.several,
      rootRank: this.rootRank,
      life: (key) => this.streams.get(key)?.life ?? null,
      growth: (key) => this.streams.get(key)?.trend.growth() ?? null,
    };
  }

  /** torchrun's summary says that there were several processes, and which of them failed first. */
  private launcher(text: string): void {
    if (text.includes('Root Cause (first observed failure)')) {
      this.several = true;
      this.summary = 12;
    } else if (text.includes('ChildFailedError') || text.includes('closing signal SIGTERM')) this.several = true;
    if (this.summary === 0) return;
    this.summary -= 1;
    const rank = /^\s*rank {0,12}: (\d{1,6})/.exec(text);
    if (rank) {
      this.rootRank = Number(rank[1]);
      this.summary = 0;
    }
  }

  /** `1: ` may be srun's label, or a line number that a terminal broke off: the rest of a message that is going on. */
  private untagged(text: string): Tagged | null {
    const label = /^ {0,3}(\d{1,4}): /.exec(text);
    if (!label || this.last?.key !== '' || this.streams.has(label[1] as string)) return null;
    const rest = { key: '', text, stamped: false };
    return this.last.takes(rest) ? rest : null;
  }

  /** Of a message of several lines, launchers tag the first, or each; terminals that wrap lines tag nothing. */
  private writer(tagged: Tagged): Stream {
    const last = this.last;
    const lacksTag = last !== null && (tagged.key === '' ? last.key !== '' : last.key.startsWith(`${tagged.key}/`));
    if (!lacksTag || !last.takes(tagged)) this.last = this.stream(tagged.key);
    return this.last as Stream;
  }

  private stream(key: string): Stream {
    let stream = this.streams.get(key);
    if (!stream) {
      if (this.streams.size >= MOST_STREAMS && key !== '') return this.stream('');
      stream = new Stream(key, this.known, (event) => this.list.add(event));
      this.streams.set(key, stream);
    }
    return stream;
  }
}

/** A line, whole and without the prefixes of who passed it on. */
interface LastWord {
  text: string;
  said: string;
  line: number;
}

export interface LogContents {
  events: Event[];
  /** How far each process came, by its key. */
  marks: ReadonlyMap<string, Mark>;
  lastWords: readonly LastWord[];
  /** Several processes wrote the log, whether or not their lines say which. */
  several: boolean;
  /** The rank that failed first, as the launcher tells it. */
  rootRank: number | null;
  /** What a process printed from first to last. */
  life: (key: string) => Life | null;
  /** How a process's memory rose from step to step, if its progress shows it. */
  growth: (key: string) => { bytesPerStep: number; steps: number } | null;
}
