import { wordsOf } from './words.js';

/** The last line of a Python traceback: `package.module.SomeError: what happened`. */
export interface Exception {
  /** Dotted, as printed: `torch.cuda.OutOfMemoryError`. */
  path: string;
  /** Its last part: `OutOfMemoryError`. */
  name: string;
  message: string;
}

const LINE = /^([A-Za-z_]\w{0,80}(?:\.[A-Za-z_<][\w<>]{0,80}){0,8})(?:\(([A-Za-z_]\w{0,80})\))?(?:: ?(.*)|[ \t]+)?$/s;
const ENDINGS =
  /(?:Error|Exception|Interrupt|Exit|Failed|Failure|Timeout|Exhausted|Cancelled|Abort|Killed|Refused|Fault|Invalid|Exceeded|Unavailable|Empty|Full)$/;
/** Endings that also other lines have; enough only where a traceback stands open or the name is dotted. */
const LOOSE = /(?:Failed|Failure|Cancelled|Abort|Killed|Refused|Fault|Exceeded|Unavailable|Empty|Full|Exit|Timeout)$/;
const LOWER = new Set(
  wordsOf(`
  socket.timeout socket.gaierror socket.error struct.error zlib.error re.error select.error _thread.error
`),
);
/** Classes whose messages quote names of the program (`module 'torch' has no attribute 'OutOfMemoryError'`), not events. */
export const QUOTING = new Set(
  wordsOf(`
  AttributeError ImportError ModuleNotFoundError NameError UnboundLocalError SyntaxError IndentationError TabError
  KeyError TypeError
`),
);
/** How PowerShell calls what a program writes to stderr, whatever that is. */
const POWERSHELL = /^FullyQualifiedError/;
/** Words that open a log line, not an exception. */
const LEVELS = /^(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL|FATAL|TRACE|NOTE|NOTICE|[A-Z][a-z]+)$/;

/** A line as an exception; null: none. `expected`: a traceback is open, so any class will do, not only those named like one. */
export function parseException(text: string, expected: boolean): Exception | null {
  const match = LINE.exec(text.length > 4096 ? text.slice(0, 4096) : text);
  if (!match) return null;
  const path = match[1] as string;
  // RayTaskError(OutOfMemoryError): the inner name is the one that was raised
  const name = match[2] ?? (path.split('.').at(-1) as string);
  const message = match[3] ?? '';
  // `Error: no such thing` is what commands print
  if (
    ENDINGS.test(name) &&
    name.length > 5 &&
    !POWERSHELL.test(name) &&
    (expected || path !== name || !LOOSE.test(name))
  ) {
    return { path, name, message };
  }
  if (LOWER.has(path)) return { path, name, message };
  if (!expected || LEVELS.test(path)) return null;
  return path.includes('.') && /^[A-Z_]/.test(name) && text.includes(':') ? { path, name, message } : null;
}
