import { shapeOf } from './traceback.js';
import { saysFailed } from './words.js';

/** Kinds of lines that are kept: the first so many of a process. */
const KEPT = 2048;
const SHORTEST = 12;
/** Lines of the kinds seen before, and kinds of them, that a process which has died does not print any more. */
const LINES = 6;
const KINDS = 3;
/** The first so many lines say how a run begins; where so many of them come again, another one began. */
const HEAD = 40;
const HEAD_AGAIN = 4;

/** Dumps: allocators, stacks and tables print line after line of one kind when all is over. */
const DUMPED = /bfc_allocator|cuda_host_allocator|^\s*frame #|^\s*[|#=+*-]{2}|^\s*[|│]/;
/** What a tracker or LSF prints as a run ends, however it ends; a run that begins is told otherwise. */
const SUMMARY =
  /^(?:(?:wandb|swanlab|clearml|mlflow): (?!Tracking|Syncing|Agent|\t|Run data|Using)|\s+(?:CPU|Run|Turnaround) time ?:|\s+(?:\w+ ){1,2}(?:Memory|Processes|Threads|Swap) :|Resource usage summary|The output \(if any\)|Read file <)/;

/**
 * The kinds of lines that a process printed, and where: many logs hold one run after another, and loops of shells and sweeps
 * go on where one of their runs has failed. What died prints none of its usual lines again.
 */
export class Life {
  private readonly kinds = new Map<string, Kind>();

  /** Takes a line that is part of no error. */
  note(text: string, line: number): void {
    const kind = kindOf(text);
    if (kind.length < SHORTEST || !/[A-Za-z]{3}/.test(kind)) return;
    if (DUMPED.test(text) || SUMMARY.test(text) || saysFailed(text)) return;
    const seen = this.kinds.get(kind);
    if (!seen) {
      if (this.kinds.size < KEPT) this.kinds.set(kind, { first: line, head: this.kinds.size < HEAD, latest: [] });
      return;
    }
    seen.latest.push(line);
    if (seen.latest.length > LINES) seen.latest.shift();
  }

  /** Whether a line of this kind was printed before. */
  knows(text: string): boolean {
    return this.kinds.has(kindOf(text));
  }

  /** What was printed behind line `from` of kinds that had come before line `failed`. */
  after(failed: number, from: number): { wentOn: boolean; beganAnew: boolean } {
    const again = [...this.kinds.values()].filter(({ first, latest }) => first < failed && (latest.at(-1) ?? 0) > from);
    const lines = again.flatMap(({ latest }) => latest.filter((line) => line > from));
    const wentOn = lines.length >= LINES && again.length >= KINDS;
    return { wentOn, beganAnew: wentOn && again.filter(({ head }) => head).length >= HEAD_AGAIN };
  }
}

interface Kind {
  /** Number of the line where it came first, and whether that is how the log begins. */
  first: number;
  head: boolean;
  /** Numbers of the latest lines of this kind. */
  latest: number[];
}

function kindOf(text: string): string {
  return shapeOf(text.trim().slice(0, 120)).replace(/0+/g, '0');
}
