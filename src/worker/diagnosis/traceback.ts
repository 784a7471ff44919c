import { type Exception, parseException } from './exception.js';

export interface Frame {
  file: string;
  line: number;
  function: string;
  /** The source line shown under it; '' if none. */
  source: string;
}

export interface Traceback {
  /** Its last lines before the exception, together: frames that a terminal wrapped are no more than that. */
  tail: string;
  /** Where it begins and where its exception stands, 1-based. */
  line: number;
  exceptionLine: number;
  frames: Frame[];
  exception: Exception;
  /** The traceback that this one was raised from or after, and how it says so. */
  previous: Traceback | null;
  relation: 'handling' | 'cause' | 'original' | null;
  /** Printed, not raised: `Exception ignored in`, a logging error, a failing exit handler. */
  ignored: boolean;
}

const HEADER = 'raceback (most recent call last)';
const FRAME = /^\s*(?:[|+] *)?File "([^"]{1,400})", line (\d{1,9})(?:, in (.{1,200}))?/;
/** A frame behind what a logger writes before each line of a traceback whose head is not there. */
const PREFIXED_FRAME = /^(.{0,160}\S ?) {2}(?=File "[^"]{1,400}", line \d{1,9}, in )/;
/** rich's boxes and IPython: `/path/file.py:41 in main`, `File ~/x.py:41, in main(args)`. */
const SHORT_FRAME = /^\s*(?:[│|] )?(?:File )?([\w./~<>-]{1,400}\.py):(\d{1,9}),? in ([\w.<>]{1,100})/;
/** The beginning of another program's line, or of a logger's record: an exception's message has ended. */
const RECORD =
  /^(?:\[[DIWEF][ \d]|[IWEF]\d{4} \d\d:|(?:srun|slurmstepd|wandb|make|mpirun|prterun|bash|sh)(?:\[\d{1,6}\])?: |(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b|\[(?:DEBUG|INFO|WARN|WARNING|ERROR)\]|\[\d{4}-\d\d)/;
/** Functions at the bottom of what runs when a program is over. */
const CLEANUP =
  /^(?:_run_finalizers|_exit_function|__del__|_python_exit|_run_exitfuncs|_shutdown_workers|_cleanup|_shutdown)$/;
/** Where `logging` writes a record: it catches what is raised there, and prints it. */
const LOGGING = /[\\/]logging[\\/](?:__init__|handlers)\.pyc?$/;
const LONGEST = 600;
/** Of a deeper traceback the middle is left out: it is a recursion, or a framework's own. */
const MOST_FRAMES = 120;
const OUTER_FRAMES = 30;
/** Lines that a wrapped frame and its source may take. */
const TAIL = 5;

/** What a line is to the tracebacks of its stream. `text`: the line without what stood before the traceback. */
export interface ReadLine {
  part: 'outside' | 'header' | 'frame' | 'exception' | 'message';
  text: string;
}

/** Puts the tracebacks of one process together, line by line. */
export class TracebackReader {
  private state: 'outside' | 'frames' | 'message' = 'outside';
  private frames: Frame[] = [];
  private startLine = 0;
  private linesIn = 0;
  private indent = 0;
  private shape = '';
  private boxed = false;
  private tail: string[] = [];
  private ignored = false;
  private relation: Traceback['relation'] = null;
  /** The last traceback that came to its exception. */
  last: Traceback | null = null;
  private before = '';

  /** `ended`: called with a traceback when its exception is known. */
  constructor(private readonly ended: (traceback: Traceback) => void) {}

  get open(): boolean {
    return this.state === 'frames';
  }

  /** The traceback whose exception is yet to come; null: none stands open. */
  get unfinished(): { line: number; frames: readonly Frame[] } | null {
    return this.open ? { line: this.startLine, frames: this.frames } : null;
  }

  /** The message of an exception may go on. */
  get inMessage(): boolean {
    return this.state === 'message';
  }

  feed(raw: string, number: number): ReadLine {
    const text = this.state === 'outside' ? raw : this.unshape(raw);
    const read = { part: this.step(text, number), text };
    if (this.state === 'frames') this.keep(text);
    if (text.trim() !== '') this.before = text;
    return read;
  }

  /** Lines were left out, or the log ended. */
  reset(): void {
    this.state = 'outside';
    this.frames = [];
  }

  private step(text: string, number: number): ReadLine['part'] {
    const header = text.indexOf(HEADER);
    if (header > 0) return this.begin(text, header - 1, number);
    if (this.state !== 'outside' && ++this.linesIn > LONGEST) this.reset();
    if (this.state === 'outside') {
      if (this.chain(text)) return 'outside';
      // A log cut off at its front may begin within a traceback.
      const before = text.includes('  File "') ? (PREFIXED_FRAME.exec(text)?.[1] ?? '') : '';
      const frame = before !== '' || FRAME.test(text) ? this.frame(text.slice(before.length)) : null;
      if (!frame) return 'outside';
      this.open_(number, before);
      this.frames.push(frame);
      return 'frame';
    }
    if (this.state === 'message') return this.continueMessage(text, number);
    return this.inFrames(text, number);
  }

  private begin(text: string, at: number, number: number): 'header' | 'exception' {
    const before = text.slice(0, at);
    // An error whose message is the traceback of another language.
    const foreign = this.state === 'frames' && /: $/.test(before) ? parseException(before.trimEnd(), true) : null;
    if (foreign) return this.finish(foreign, number);
    const boxed = /[─╭┌]/.test(before);
    this.open_(number, boxed ? '' : before);
    this.boxed = boxed;
    const said = `${this.before}\n${before}`;
    this.ignored =
      /Exception ignored|--- Logging error|Error in atexit|Error in sys\.excepthook|Exception in (?:thread|user code)/.test(
        said,
      );
    if (/Original $/.test(before) || /terminated with the following error|Original traceback/i.test(this.before)) {
      this.relation = 'original';
    }
    return 'header';
  }

  private keep(text: string): void {
    this.tail.push(text.slice(0, 300));
    if (this.tail.length > TAIL) this.tail.shift();
  }

  private open_(number: number, before: string): void {
    this.state = 'frames';
    this.tail = [];
    this.frames = [];
    this.startLine = number;
    this.linesIn = 0;
    this.boxed = false;
    this.ignored = false;
    this.indent = before.length;
    this.shape = shapeOf(before);
  }

  /** Takes off what every line of this traceback bears before it (a logger's prefix). */
  private unshape(text: string): string {
    if (this.indent === 0 || text.length <= this.indent) return text;
    return shapeOf(text.slice(0, this.indent)) === this.shape ? text.slice(this.indent) : text;
  }

  private inFrames(text: string, number: number): ReadLine['part'] {
    const frame = this.frame(text);
    if (frame) {
      if (this.frames.length >= MOST_FRAMES) this.frames.splice(OUTER_FRAMES, 1);
      this.frames.push(frame);
      return 'frame';
    }
    if (this.boxed && /^[│|╭]/.test(text)) return 'frame';
    if (/^[╰└]/.test(text)) {
      this.boxed = false;
      return 'frame';
    }
    if (this.chain(text)) return 'outside';
    // What `logging` adds to the call stack of a record that it could not write.
    if (text.startsWith('Message: ')) {
      this.reset();
      return 'outside';
    }
    const stripped = text.replace(/^ {0,8}[|+] {1,8}/, '');
    if (/^\s/.test(stripped) || text.trim() === '') {
      const top = this.frames.at(-1);
      const bare = text.trim();
      // One line of source stands below each frame; an error's name after it is the error, however far it is indented.
      const raised = top && top.source !== '' ? parseException(bare.replace(/[`*]{1,3}$/, ''), false) : null;
      if (raised) return this.finish(raised, number);
      if (top && top.source === '' && bare !== '' && !/^[\s^~]+$/.test(text)) top.source = bare.slice(0, 300);
      return 'frame';
    }
    const exception = parseException(stripped, true);
    // Something else printed in between; the traceback goes on.
    if (!exception) return 'outside';
    return this.finish(exception, number);
  }

  private finish(exception: Exception, number: number): 'exception' {
    const traceback: Traceback = {
      line: this.startLine,
      tail: this.tail.join(''),
      exceptionLine: number,
      frames: this.frames,
      exception,
      previous: this.relation ? this.last : null,
      relation: this.relation,
      ignored: this.ignored || isCaught(this.frames[0]),
    };
    this.relation = null;
    this.state = 'message';
    this.linesIn = 0;
    this.last = traceback;
    this.ended(traceback);
    return 'exception';
  }

  private continueMessage(text: string, number: number): ReadLine['part'] {
    if (this.chain(text)) {
      this.state = 'outside';
      return 'outside';
    }
    const frame = FRAME.test(text) ? this.frame(text) : null;
    if (frame) {
      // The message of a remote error holds the frames of the other process, then its exception.
      this.open_(number, '');
      this.frames.push(frame);
      this.relation = 'original';
      return 'frame';
    }
    // Another process's exception, between the lines of this one's message.
    const other = /^[A-Za-z_]/.test(text) ? parseException(text, false) : null;
    if (other) {
      this.frames = [];
      this.startLine = number;
      this.ignored = this.last?.ignored === true && this.last.exception.message === other.message;
      return this.finish(other, number);
    }
    if (text.trim() === '' || text.startsWith('"""') || this.linesIn > 40 || RECORD.test(text)) {
      this.state = 'outside';
      return 'outside';
    }
    return 'message';
  }

  private frame(text: string): Frame | null {
    const match = FRAME.exec(text) ?? SHORT_FRAME.exec(text);
    if (!match) return null;
    return { file: match[1] as string, line: Number(match[2]), function: (match[3] ?? '').trim(), source: '' };
  }

  private chain(text: string): boolean {
    if (!text.includes('above exception')) return false;
    if (text.includes('During handling of')) this.relation = 'handling';
    else if (text.includes('direct cause')) this.relation = 'cause';
    else return false;
    return true;
  }
}

/** A traceback, a frame of one or a record begins in the line. */
export function opens(text: string): boolean {
  return text.includes(HEADER) || FRAME.test(text) || RECORD.test(text);
}

const STANDARD = /^<|[\\/]lib(?:64)?[\\/]python\d[^\\/]*[\\/](?!(?:site|dist)-packages[\\/])/;
const HOOK = /[\\/]oomtune[\\/]hook[\\/]/;
/** A call that the hook only passes on, or an error that it raises on purpose. */
const PASSED_ON = /\*\w*(?:args|kwargs)\b|\boriginal\w*\(|\bnext\(|^raise\b/;

/** Raised by oomtune's hook itself, and not by what it was called for: errors of the program pass through it, too. */
export function isOfHook({ frames }: Traceback): boolean {
  const frame = frames.findLast(({ file }) => !STANDARD.test(file));
  return frame !== undefined && HOOK.test(frame.file) && frame.source !== '' && !PASSED_ON.test(frame.source);
}

/** A line that can be the middle of a message: no traceback, exception or record begins in it. */
export function isProse(text: string): boolean {
  if (text.trim() === '' || opens(text)) return false;
  return !/^[A-Za-z_]/.test(text) || parseException(text, false) === null;
}

/** The text with all figures alike. */
export function shapeOf(text: string): string {
  return text.replace(/\d/g, '0');
}

/** What is raised in it is caught by its caller, which only prints it. */
function isCaught(outermost: Frame | undefined): boolean {
  if (!outermost) return false;
  return CLEANUP.test(outermost.function) || isLogging(outermost) || isThread(outermost);
}

/** A thread ended of it, and the program goes on. */
function isThread({ file, function: name }: Frame): boolean {
  return name === '_bootstrap_inner' && /[\\/]threading\.py$/.test(file);
}

/** A record could not be written; the program goes on. */
export function isLogging(outermost: Frame | undefined): boolean {
  return outermost?.function === 'emit' && LOGGING.test(outermost.file);
}
