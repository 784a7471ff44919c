import type { Diagnosis } from '../../contract/diagnosis.js';
import { Decoder } from './decode.js';
import { describe } from './describe.js';
import type { Event } from './event.js';
import { refusedNothing } from './grounds.js';
import { incidents } from './incident.js';
import { type LogContents, Reader } from './reader.js';
import { Scanner } from './scanner.js';
import type { Signals } from './signals.js';
import { type Signatures, signatures } from './signatures.js';
import { Unwrapper } from './unwrap.js';
import { judge } from './verdict.js';

export { renderDiagnosis } from './render.js';

/** A log, in pieces of any size, and whatever else is known of how the job ended. */
export type DiagnoseInput = {
  log: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
} & Partial<{ [K in keyof Signals]: Signals[K] | undefined }>;

/** Reads the signatures before they are needed: while a process starts there is time, when it has died there is none. */
export function prepareDiagnosis(): void {
  signatures();
}

/** Says why a job failed, whose memory it was, and what helps, reading the log once. Rejects if it cannot be read. */
export async function diagnose(input: DiagnoseInput): Promise<Diagnosis> {
  const signals: Signals = {
    exitCode: input.exitCode ?? null,
    signal: input.signal ?? null,
    device: input.device ?? null,
    ledger: input.ledger ?? null,
    hook: input.hook ?? null,
    growth: input.growth ?? null,
    keptBy: input.keptBy ?? null,
    hostOom: input.hostOom ?? null,
    lostBytes: input.lostBytes ?? 0,
    endedBy: input.endedBy ?? null,
    neighbours: input.neighbours ?? [],
    totalBytes: input.totalBytes ?? null,
    deviceData: input.deviceData ?? false,
    gradInEval: input.gradInEval ?? null,
    textOf: input.textOf ?? null,
  };
  const known = signatures();
  const contents = await readLog(input.log, known);
  const hook = signals.hook ? readHook(signals.hook, signals, known) : null;
  return describe(judge(contents, signals, hook), contents, signals, known);
}

async function readLog(log: DiagnoseInput['log'], known: Signatures): Promise<LogContents> {
  const reader = new Reader(known);
  const lines = new Unwrapper(reader);
  const scanner = new Scanner(known.automaton, lines);
  const decoder = new Decoder();
  for await (const chunk of log) scanner.push(decoder.push(chunk));
  scanner.push(decoder.finish());
  scanner.finish();
  lines.finish();
  return reader.finish();
}

/** The hook's exception, read as the end of a log of its own. */
function readHook(hook: NonNullable<Signals['hook']>, signals: Signals, known: Signatures): Event | null {
  const reader = new Reader(known);
  const lines = hook.traceback?.includes('Traceback') ? hook.traceback.split('\n') : [];
  if (lines.length === 0)
    lines.push('Traceback (most recent call last):', ...`${hook.class}: ${hook.message}`.split('\n'));
  lines.forEach((text, i) => {
    reader.line({ text, number: i + 1, whole: true });
  });
  const { events, marks } = reader.finish();
  const event = incidents(events, marks).findLast((incident) => incident.last.traceback)?.event;
  if (!event) return null;
  const phase = hook.phase === 'unknown' || hook.phase === 'after' ? event.phase : hook.phase;
  // Where the ledger saw that nothing was refused, the hook can only have gone by the error's words.
  const oom = hook.oom && event.meaning.class !== 'device_oom' && (signals.ledger === null || !refusedNothing(signals));
  const meaning = oom ? { ...event.meaning, ...HOOK_OOM } : event.meaning;
  return { ...event, meaning, phase, line: 0 };
}

const HOOK_OOM = { class: 'device_oom', role: 'fatal', certain: true, advice: 'smaller-batch' } as const;
