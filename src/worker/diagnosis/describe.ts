import { isHost } from '../../contract/device-id.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import { causeOf, reasonOf, remedyOf, type Scene } from './cause.js';
import type { Event } from './event.js';
import { type Figures, mergeFigures, reservedInAll } from './figures.js';
import { LIMITED } from './grounds.js';
import { phaseOf } from './phase.js';
import { pictureOf } from './picture.js';
import { programOf } from './program.js';
import { readProgress } from './progress.js';
import type { LogContents } from './reader.js';
import { endWords, failed, lastRefusal, type Signals } from './signals.js';
import type { Signatures } from './signatures.js';
import type { Verdict } from './verdict.js';

/** Lines between what an allocator prints, with all its blocks, and the exception that comes of it. */
const PRELUDE = 400;
/** Lines that one message may be spread over. */
const SAME_MESSAGE = 14;

/** The document for a verdict: figures, phase, why, and what helps. */
export function describe(verdict: Verdict, contents: LogContents, signals: Signals, known: Signatures): Diagnosis {
  const { event } = verdict;
  // Where no signature knows the error, the last words may still tell a person; else the end itself is all there is.
  const last = event === null && verdict.class === 'user_error' ? lastWords(contents, signals) : null;
  const figures = event ? gather(event, verdict.soft, contents) : {};
  const diagnosis: Diagnosis = {
    class: verdict.class,
    certain: verdict.certain,
    evidence: event?.evidence ?? last?.text ?? null,
    line: event ? event.line || null : (last?.line ?? null),
    fields: fieldsOf(figures),
    phase: event ? phaseThen(event, signals) : 'unknown',
    cause: '',
    advice: '',
    ambiguous: verdict.class === 'device_oom' && !verdict.certain,
    reason: null,
    signature: event?.id ?? null,
    rank: event?.key || null,
    memory: null,
    soft_ooms: verdict.softOoms.map((e) => e.line),
  };
  const advise = (key: string) => {
    diagnosis.advice = known.advice[key] ?? '';
  };
  if (verdict.class === 'device_oom') describeMemory(diagnosis, verdict, figures, contents, signals, known);
  else if (verdict.class === 'ok') describeOk(diagnosis, verdict, advise);
  else {
    diagnosis.cause = verdict.told ? sentence(verdict.told) : (event?.meaning.cause ?? '');
    advise(verdict.advice ?? (event && !verdict.told ? event.meaning.advice : verdict.class));
    if (verdict.advice === LIMITED) {
      diagnosis.reason = 'limit';
      diagnosis.cure = 'none';
      diagnosis.memory = pictureOf(figures, signals);
    }
    if (verdict.caught) {
      const { line, meaning } = verdict.caught;
      const memory = meaning.class === 'device_oom';
      diagnosis.cause += ` It was raised while ${memory ? 'an out-of-memory error on the device' : 'another error'} was handled (line ${line}).`;
      if (memory) advise('masked');
    }
  }
  const soft = verdict.softOoms;
  if (verdict.class !== 'ok' && soft.length > 0) {
    diagnosis.cause += ` Before that the job had got over ${times(soft.length)} (line ${soft[0]?.line}).`;
  }
  return diagnosis;
}

/** What follows the training is none, whatever the function is called that it stands in. */
function phaseThen(event: Event, { hook, textOf }: Signals): Diagnosis['phase'] {
  const phase = phaseOf(event, textOf);
  return phase === 'train' && hook?.phase === 'after' ? 'unknown' : phase;
}

function describeMemory(
  diagnosis: Diagnosis,
  { certain, told, event, soft }: Verdict,
  figures: Figures,
  contents: LogContents,
  signals: Signals,
  known: Signatures,
): void {
  const program = event && programOf(event, known.programs);
  // What serves a model trains none, whatever its progress lines look like.
  if (program?.inference && diagnosis.phase === 'train') diagnosis.phase = 'unknown';
  const picture = pictureOf(figures, signals);
  const scene: Scene = {
    picture,
    allowed: figures.allowed_bytes ?? null,
    reserved: reservedInAll(figures) ?? null,
    phase: diagnosis.phase,
    traceback: event?.traceback ?? null,
    growth: signals.growth ?? contents.growth(event?.key ?? ''),
    keptBy: signals.hook?.kept_by ?? signals.keptBy,
    deviceData: signals.deviceData,
    gradInEval: signals.gradInEval ?? signals.hook?.gradients ?? null,
    ended: signals.hook?.phase === 'after',
    host: isHost(signals.device),
    budget: picture !== null && picture.total_bytes === lastRefusal(signals)?.budget_bytes,
  };
  const reason = reasonOf(scene);
  const remedy = remedyOf(reason, scene);
  const own =
    event &&
    [event, ...related(event, soft, contents)].find(
      // Where the host's memory is the device, what helps a host is not what helps.
      ({ meaning }) => !COMMON.has(meaning.advice) && meaning.class !== 'host_oom',
    );
  const special = program?.advice ?? own?.meaning.advice;
  diagnosis.memory = picture;
  diagnosis.reason = reason;
  diagnosis.cure = certain ? remedy.cure : 'smaller';
  diagnosis.cause = told ? sentence(told) : causeOf(reason, scene);
  if (!certain && event) diagnosis.cause = `${event.meaning.cause} It may mean something else.`;
  const usual = certain ? remedy.advice : 'ambiguous';
  const plain = PLAIN.has(reason) || (BETWEEN_STEPS.has(reason) && !program?.advice);
  diagnosis.advice = known.advice[certain && plain ? usual : (special ?? usual)] ?? '';
}

/** Advice that says nothing that the reason does not say better. */
const COMMON = new Set(['smaller-batch', 'ambiguous', 'soft-oom']);
/** Reasons that call for the same remedy whoever trains; and those that do so whoever runs. */
const BETWEEN_STEPS = new Set<string | null>(['eval', 'save', 'after']);
const PLAIN = new Set<string | null>(['neighbour', 'asked', 'limit', 'leak', 'data']);

function describeOk(diagnosis: Diagnosis, { softOoms, told, fallback }: Verdict, advise: (key: string) => void): void {
  const soft = softOoms[0];
  const shown = soft ?? fallback;
  diagnosis.cause = told ? sentence(told) : 'The job ended well.';
  advise(told ? 'no-failure' : 'ok');
  if (shown) {
    diagnosis.evidence = shown.evidence;
    diagnosis.line = shown.line;
    diagnosis.fields = fieldsOf(shown.figures);
    diagnosis.signature = shown.id;
  }
  if (soft) {
    diagnosis.cause = `The job got over ${times(softOoms.length)} on the device (soft OOM, line ${soft.line}) and ${told ? 'went on' : 'ended well'}.`;
    advise('soft-oom');
  }
  if (fallback) {
    diagnosis.cause += ` It fell back to the CPU (line ${fallback.line}).`;
    if (!soft) advise('fallback');
  }
}

const TELLING = /error|fatal|fail|cannot|can't|could not|unable|invalid|denied|not found|missing|refused|panic|abort/i;
const LAUNCHER = /^(?:wandb|make|srun|slurmstepd)(?:\[\d+\])?: /;

/** The last line that speaks of a failure, else how it ended; of a log alone the last line. */
function lastWords({ lastWords: words }: LogContents, signals: Signals): { text: string; line: number | null } | null {
  const telling = words.findLast(
    ({ text, said }) => TELLING.test(text) && !LAUNCHER.test(text) && readProgress(said) === null,
  );
  if (telling) return telling;
  return failed(signals) === null ? (words.at(-1) ?? null) : { text: endWords(signals), line: null };
}

/** The event's own figures, and what other messages of the same failure and process add. */
function gather(event: Event, soft: ReadonlySet<Event>, contents: LogContents): Figures {
  return related(event, soft, contents).reduce((figures, other) => mergeFigures(figures, other.figures), event.figures);
}

/** Other messages of the same failure and process. */
function related(event: Event, soft: ReadonlySet<Event>, contents: LogContents): Event[] {
  return contents.events.filter((other) => {
    if (other === event || soft.has(other) || other.key !== event.key) return false;
    if (other.meaning.class !== event.meaning.class) return false;
    if (other.traceback && other.traceback !== event.traceback) return false;
    return Math.abs(other.line - event.line) < (other.prelude ? PRELUDE : SAME_MESSAGE);
  });
}

function fieldsOf(figures: Figures): Diagnosis['fields'] {
  return {
    tried_bytes: figures.tried_bytes ?? null,
    total_bytes: figures.total_bytes ?? null,
    free_bytes: figures.free_bytes ?? null,
    allocated_bytes: figures.allocated_bytes ?? null,
    reserved_bytes: reservedInAll(figures) ?? null,
    gpu: figures.gpu ?? null,
  };
}

/** More are not counted: a log may repeat one message without end. */
const MANY = 100;

function times(count: number): string {
  if (count === 1) return 'an out-of-memory error';
  return count < MANY ? `${count} out-of-memory errors` : 'hundreds of out-of-memory errors';
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
