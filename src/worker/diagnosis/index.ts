import type { Diagnosis } from '../types.js';
import { ADVICE, causeOf, reasonOf } from './cause.js';
import { Decoder } from './decode.js';
import type { Event } from './event.js';
import { type Figures, mergeFigures } from './figures.js';
import { phaseOf } from './phase.js';
import { pictureOf } from './picture.js';
import { Reader, type Reading } from './reader.js';
import { Scanner } from './scanner.js';
import type { Signals } from './signals.js';
import { type Signatures, signatures } from './signatures.js';
import { judge, type Verdict } from './verdict.js';

export { renderDiagnosis } from './render.js';
export type { HookReport, Signals } from './signals.js';

/** A log, in pieces of any size, and whatever else is known of how the job ended. */
export type DiagnoseInput = {
  log: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
} & Partial<{ [K in keyof Signals]: Signals[K] | undefined }>;

const NO_FIELDS: Diagnosis['fields'] = {
  tried_bytes: null,
  total_bytes: null,
  free_bytes: null,
  allocated_bytes: null,
  reserved_bytes: null,
  gpu: null,
};

/**
 * Says why a job failed, whose memory it was, and what helps. Reads the log once, as a stream, in bounded memory.
 * Rejects only if the log cannot be read.
 */
export async function diagnose(input: DiagnoseInput): Promise<Diagnosis> {
  const signals: Signals = {
    exitCode: input.exitCode ?? null,
    signal: input.signal ?? null,
    device: input.device ?? null,
    ledger: input.ledger ?? null,
    hook: input.hook ?? null,
    growth: input.growth ?? null,
    hostOom: input.hostOom ?? null,
    endedBy: input.endedBy ?? null,
    neighbours: input.neighbours ?? [],
    totalBytes: input.totalBytes ?? null,
  };
  const known = signatures();
  const reading = await readLog(input.log, known);
  const hook = signals.hook ? readHook(signals.hook, known) : null;
  return describe(judge(reading, signals, hook), reading, signals, known);
}

async function readLog(log: DiagnoseInput['log'], known: Signatures): Promise<Reading> {
  const reader = new Reader(known);
  const scanner = new Scanner(known.automaton, reader);
  const decoder = new Decoder();
  for await (const chunk of log) scanner.push(decoder.push(chunk));
  scanner.push(decoder.finish());
  scanner.finish();
  return reader.finish();
}

/** The hook's exception, read as the end of a log of its own. */
function readHook(hook: NonNullable<Signals['hook']>, known: Signatures): Event | null {
  const reader = new Reader(known);
  const lines = hook.traceback?.includes('Traceback') ? hook.traceback.split('\n') : [];
  if (lines.length === 0)
    lines.push('Traceback (most recent call last):', ...`${hook.class}: ${hook.message}`.split('\n'));
  lines.forEach((text, i) => {
    reader.line({ text, number: i + 1, whole: true });
  });
  const events = reader.finish().events;
  const event = events.filter((e) => e.traceback).sort((a, b) => a.rank - b.rank)[0] ?? events[0];
  if (!event) return null;
  const phase = hook.phase === 'unknown' ? event.phase : hook.phase;
  const meaning = hook.oom && event.meaning.class !== 'device_oom' ? { ...event.meaning, ...HOOK_OOM } : event.meaning;
  return { ...event, meaning, phase, line: 0 };
}

const HOOK_OOM = { class: 'device_oom', role: 'fatal', certain: true } as const;

function describe(verdict: Verdict, reading: Reading, signals: Signals, known: Signatures): Diagnosis {
  const { event } = verdict;
  const figures = event ? gather(event, reading) : {};
  const phase = event ? phaseOf(event) : 'unknown';
  const last = event === null && verdict.class !== 'ok' ? (reading.lastWords.at(-1) ?? null) : null;
  const diagnosis: Diagnosis = {
    class: verdict.class,
    certain: verdict.certain,
    evidence: event?.evidence ?? last?.text ?? null,
    line: event ? event.line || null : (last?.line ?? null),
    fields: fieldsOf(figures),
    phase,
    cause: '',
    advice: '',
    ambiguous: verdict.class === 'device_oom' && !verdict.certain,
    reason: null,
    signature: event?.id ?? null,
    rank: event?.key || null,
    memory: null,
    soft_ooms: verdict.softOoms.map((e) => e.line),
  };
  if (verdict.class === 'device_oom') {
    const picture = pictureOf(figures, signals);
    const reason = reasonOf(picture, phase, signals);
    diagnosis.memory = picture;
    diagnosis.reason = reason;
    diagnosis.cause = verdict.told ? `${capital(verdict.told)}.` : causeOf(reason, picture, phase, signals);
    if (!verdict.certain && event) diagnosis.cause = `${event.meaning.cause} It may mean something else.`;
    diagnosis.advice = adviceFor(known, verdict.certain ? ADVICE[reason] : 'ambiguous');
  } else if (verdict.class === 'ok') {
    describeOk(diagnosis, verdict, known);
  } else {
    diagnosis.cause = verdict.told ? `${capital(verdict.told)}.` : (event?.meaning.cause ?? '');
    diagnosis.advice = adviceFor(known, event && !verdict.told ? event.meaning.advice : (verdict.class as string));
    if (verdict.caught)
      diagnosis.cause += ` It was raised while another error was handled (line ${verdict.caught.line}).`;
  }
  if (verdict.class !== 'ok' && verdict.softOoms.length > 0) {
    diagnosis.cause += ` Before that the job had got over ${times(verdict.softOoms.length)} (line ${verdict.softOoms[0]?.line}).`;
  }
  return diagnosis;
}

function describeOk(diagnosis: Diagnosis, { softOoms, told }: Verdict, known: Signatures): void {
  const soft = softOoms[0];
  if (!soft) {
    diagnosis.cause = told ? `${capital(told)}.` : 'The job ended well.';
    diagnosis.advice = adviceFor(known, told ? 'no-failure' : 'ok');
    return;
  }
  diagnosis.evidence = soft.evidence;
  diagnosis.line = soft.line;
  diagnosis.fields = fieldsOf(soft.figures);
  diagnosis.signature = soft.id;
  diagnosis.cause = `The job got over ${times(softOoms.length)} on the device (soft OOM, line ${soft.line}) and ${told ? 'went on' : 'ended well'}.`;
  diagnosis.advice = adviceFor(known, 'soft-oom');
}

/** The event's own figures, and what other messages of the same failure and process add. */
function gather(event: Event, reading: Reading): Figures {
  let figures = event.figures;
  for (const other of reading.events) {
    const same = other !== event && other.key === event.key && other.meaning.class === event.meaning.class;
    if (same && Math.abs(other.line - event.line) < 400) figures = mergeFigures(figures, other.figures);
  }
  return figures;
}

function fieldsOf(figures: Figures): Diagnosis['fields'] {
  const fields = { ...NO_FIELDS };
  for (const name of Object.keys(fields) as (keyof Diagnosis['fields'])[]) fields[name] = figures[name] ?? null;
  return fields;
}

function adviceFor(known: Signatures, key: string): string {
  return known.advice[key] ?? '';
}

function times(count: number): string {
  return count === 1 ? 'an out-of-memory error' : `${count} out-of-memory errors`;
}

function capital(sentence: string): string {
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}
