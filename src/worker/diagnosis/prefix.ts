/**
 * Who wrote a line. Launchers, schedulers and log collectors put a rank, a pod, a time before what a process printed;
 * lines of several processes are told apart by it, and a traceback is only one when it is gone.
 */
export interface Tagged {
  /** Rank, pid, pod, … as written; '' where the line bears none. */
  key: string;
  /** The line without them, its own indentation kept. */
  text: string;
  /** A time stood before it: a new record of a log. */
  stamped: boolean;
}

/** Every quantifier below is bounded or over one class of characters, and all are anchored: none can be made slow. */
const BRACKETED = [
  // [rank3]: torchrun since 2.2; [default0]: torchrun's tee; [3]: lightning and others
  /^\[(?:rank|default|gpu|global_rank|local_rank|local|worker|proc|process|node|trainer|task)[ :=_#-]{0,2}(\d{1,5})\]:? ?/i,
  /^\[(\d{1,5})\]: ?/,
  // [1,3]<stderr>: mpirun --tag-output; SageMaker's [1,mpirank:3,algo-1]<stderr>:
  /^\[\d{1,4},(?:mpirank:)?(\d{1,5})(?:,[\w.-]{1,64})?\] ?<std(?:err|out|diag)>: ?/,
  /^\[pod\/([\w./-]{1,160})\] /,
];
const PARENTHESISED = [
  // Ray, vLLM and others: (RayTrainWorker pid=123, ip=10.0.0.1)
  /^\((?:[^()]{0,80} )?pid=(\d{1,8})[^()]{0,80}\) ?/,
  /^\((?:rank|worker|gpu)[ :=_-]?(\d{1,5})\):? ?/i,
];
const WORDED = [
  /^(?:rank|worker|node|gpu|proc|trainer|task|host)[ _-]?(\d{1,5}) {0,2}[:|>] ?/i,
  // docker compose: trainer-1  | , and pdsh, as DeepSpeed starts it: worker-1:
  /^(?!epoch|step|iter|batch|trial|fold|layer|stage|phase)([a-z][\w.-]{0,60}[-_]\d{1,5})(?: {0,12}\| ?|: )/i,
];
const SRUN = /^ {0,3}(\d{1,4}): /;
const STAMPS = [
  /^[[(]?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?[\])]?(?: std(?:out|err) [FP](?= ))?[:\t ]? ?/,
  /^\[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?[ \t]/,
  /^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d{1,8}\])?:)? /,
  /^\[ {0,6}\d{1,8}\.\d{6}\] ?/,
];

export function untag(line: string): Tagged {
  let text = line;
  let key = '';
  let stamped = false;
  for (let round = 0; round < 5 && text !== ''; round++) {
    const first = text.charCodeAt(0);
    const found =
      tag(text, first === 91 ? BRACKETED : first === 40 ? PARENTHESISED : isLetter(first) ? WORDED : NONE) ??
      (first === 32 || isDigit(first) ? tag(text, SRUN_ONLY) : null);
    if (found) {
      key = key === '' ? found.key : `${key}/${found.key}`;
      text = found.rest;
      continue;
    }
    const rest = unstamp(text, first);
    if (rest !== null) stamped = true;
    const inner = rest ?? unchannel(text, first) ?? (text.startsWith('##[') ? text.slice(text.indexOf(']') + 1) : null);
    if (inner === null) break;
    text = inner;
  }
  return { key, text, stamped };
}

const NONE: RegExp[] = [];
const SRUN_ONLY = [SRUN];

function tag(text: string, forms: readonly RegExp[]): { key: string; rest: string } | null {
  for (const form of forms) {
    const match = form.exec(text);
    // A tag with nothing after it is a heading of its own ("[0]:" in torchrun's summary).
    if (match && (match[0].length < text.length || form === SRUN)) {
      return { key: match[1] as string, rest: text.slice(match[0].length) };
    }
  }
  return null;
}

function unstamp(text: string, first: number): string | null {
  if (first !== 91 && first !== 40 && !isDigit(first) && !(first >= 65 && first <= 90)) return null;
  for (const form of STAMPS) {
    const match = form.exec(text);
    if (match) return text.slice(match[0].length);
  }
  return null;
}

/** `[stderr] `, and the name of a job before it; `| ERROR | stderr | `: FastChat's level is that of the stream. */
const CHANNEL = /^(?:(?:[\w.-]{1,80} )?[[(<]std(?:err|out)[\])>]:? ?|\| [A-Z]{4,8} \| std(?:err|out) \| )/;

function unchannel(text: string, first: number): string | null {
  if (first !== 91 && first !== 40 && first !== 60 && first !== 124 && !isLetter(first)) return null;
  const match = CHANNEL.exec(text);
  return match ? text.slice(match[0].length) : null;
}

/** The last number in a key: the rank, where it names one. */
export function rankOf(key: string): number | null {
  const match = /(\d{1,6})$/.exec(key);
  return match ? Number(match[1]) : null;
}

function isLetter(code: number): boolean {
  return (code >= 65 && code <= 90) || (code >= 97 && code <= 122);
}

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57;
}
