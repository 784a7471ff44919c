import type { Event, Mark } from './event.js';
import type { Traceback } from './traceback.js';
import { opensRecord, wordsOf } from './words.js';

/** One failure of one process: an error with everything that was raised from it. */
export interface Incident {
  /** What the failure is called by. */
  event: Event;
  /** Where it ended: the last error of the chain. */
  last: Event;
  /** It did not end the job: said to be dealt with, or the job went on. */
  soft: boolean;
  /** Another exception was caught when this one was raised. */
  caught: Event | null;
}

/** Errors of a program, not ways to pass another error on: raised while handling one, they are what ended the job. */
const OWN_FAULTS = new Set(
  wordsOf(`
  KeyError NameError AttributeError TypeError IndexError ValueError UnboundLocalError ZeroDivisionError
  FileNotFoundError FileExistsError PermissionError NotADirectoryError IsADirectoryError ImportError
  ModuleNotFoundError AssertionError NotImplementedError JSONDecodeError UnicodeDecodeError SyntaxError
  PicklingError RecursionError StopIteration
`),
);

/** What a message says that only passes an error on. */
const PASSED_ON =
  /fail|abort|giving up|gave up|stopp|crash|terminat|could not|unable|memory|oom|values to unpack \(expected \d+, got 0\)|need more than 0 values/i;

/** Puts the events of a log together into failures, in the order in which they ended. */
export function incidents(events: readonly Event[], marks: ReadonlyMap<string, Mark>): Incident[] {
  const byTraceback = new Map<Traceback, Event>();
  const inner = new Set<Traceback>();
  const found: Incident[] = [];
  for (const event of events) {
    const { traceback } = event;
    if (!traceback || isBeside(event, traceback)) {
      found.push({ event, last: event, soft: isSoft(event, marks), caught: null });
      continue;
    }
    if (traceback.previous) inner.add(traceback.previous);
    const best = byTraceback.get(traceback);
    byTraceback.set(traceback, best ? moreTelling(best, event) : event);
  }
  for (const [traceback, event] of byTraceback) {
    if (!inner.has(traceback)) found.push(resolve(event, byTraceback, marks));
  }
  found.sort((a, b) => a.last.line - b.last.line || a.event.rank - b.event.rank);
  found.forEach((incident, i) => {
    explain(incident, found);
    const before = found[i - 1];
    // The rest of a message that was wrapped is as soft as its beginning; a record of its own is not, if it is graver.
    const own = before?.event.mild && !incident.event.mild && opensRecord(incident.event.evidence);
    if (before?.soft && !own && goesOn(before, incident)) incident.soft = true;
  });
  return found;
}

/** Lines that one message may be spread over. */
const SAME_MESSAGE = 14;

/** `later` is the rest of what `earlier` began to say: a message that was wrapped, or that has several telling lines. */
export function goesOn(earlier: Incident, later: Incident): boolean {
  const same = earlier.last.key === later.last.key && earlier.event.meaning.class === later.event.meaning.class;
  return same && later.last.traceback === null && later.last.line - earlier.last.line <= SAME_MESSAGE;
}

/** `later` only came of `earlier`: a process that fails for memory may crash on its way out. */
export function isConsequence(earlier: Incident, later: Incident): boolean {
  const { id, meaning, outranks } = earlier.event;
  if (outranks) return true;
  if (earlier.soft || earlier.last.progress.lines !== later.last.progress.lines) return false;
  return later.event.after.some((name) => name === id || name === meaning.class);
}

/** Lines between what native code printed and the end of the traceback that came of it. */
const PRELUDE_LINES = 120;

/** An exception that only says that something failed is what native code had announced just before. */
function explain(incident: Incident, all: readonly Incident[]): void {
  const { event, last } = incident;
  const name = last.traceback?.exception.name ?? '';
  if ((!isDefault(event) && event.meaning.certain) || event !== last) return;
  if (!last.traceback) {
    const sure = all.find(
      (i) => i.event.prelude && i.event.meaning.certain && !i.soft && i !== incident && goesOn(i, incident),
    );
    if (sure && sure.last.line <= last.line) incident.event = sure.event;
    return;
  }
  if (OWN_FAULTS.has(name) && !(name === 'ValueError' && PASSED_ON.test(last.traceback.exception.message))) return;
  const start = last.traceback.line;
  for (const { event: other } of all) {
    if (other.line >= start || other.line < start - PRELUDE_LINES || other.key !== last.key) continue;
    if (!other.prelude || other.soft || other.progress.lines !== last.progress.lines) continue;
    incident.event = { ...other, phase: other.phase ?? null, traceback: last.traceback };
  }
}

/**
 * Launchers, schedulers and other ranks print right behind an exception; what they say is no part of its message, and the
 * message of a `KeyError` has one line anyway.
 */
function isBeside({ meaning, line, after }: Event, { exception, exceptionLine }: Traceback): boolean {
  if (line <= exceptionLine) return false;
  if (after.length > 0) return true;
  const others = ['ending', 'wrapper', 'soft'].includes(meaning.role) || meaning.class === 'killed';
  return others || (meaning.role === 'echo' && OWN_FAULTS.has(exception.name));
}

/** Of two readings of one message: one that ended the process, not one of any exception; then the earlier signature. */
function moreTelling(a: Event, b: Event): Event {
  const says = (event: Event) => event.meaning.role === 'fatal' && !isDefault(event);
  if (says(a) !== says(b)) return says(a) ? a : b;
  return a.rank <= b.rank ? a : b;
}

/** The meaning is that of any exception. */
export function isDefault(event: Event): boolean {
  return event.id.startsWith('exception:') && event.meaning.class === 'user_error' && event.meaning.role === 'fatal';
}

/** Follows a chain of exceptions from the last to the one that is to blame. */
function resolve(last: Event, events: ReadonlyMap<Traceback, Event>, marks: ReadonlyMap<string, Mark>): Incident {
  let event = last;
  let caught: Event | null = null;
  let traceback = last.traceback;
  for (let links = 0; traceback?.previous && links < 32; links++) {
    const earlier = events.get(traceback.previous);
    if (!earlier) break;
    if (isToBlame(earlier, event, traceback.relation)) event = earlier;
    else if (earlier.meaning.class !== event.meaning.class) caught ??= earlier;
    traceback = traceback.previous;
  }
  return { event, last, soft: isSoft(last, marks), caught };
}

/** Whether `earlier`, from which `later` was raised, is the reason of both. */
function isToBlame(earlier: Event, later: Event, relation: Traceback['relation']): boolean {
  const tells = earlier.meaning.class !== 'user_error' && earlier.meaning.role !== 'wrapper';
  const name = later.traceback?.exception.name ?? '';
  const passesOn = later.meaning.role === 'wrapper' || later.meaning.role === 'echo';
  if (passesOn && earlier.meaning.role !== 'wrapper') return true;
  if (
    relation === 'handling' &&
    later.meaning.role === 'weak' &&
    later.after.some((of) => of === earlier.id || of === earlier.meaning.class)
  )
    return true;
  // The earlier one only brings the other's traceback along, as its message.
  if (relation === 'original') return false;
  if (relation === 'cause')
    return (
      tells && (isDefault(later) || later.meaning.role === 'weak' || later.meaning.class === earlier.meaning.class)
    );
  // While an exception was handled another came: either the handler is at fault, or it passed the first one on.
  if (!tells || !isDefault(later) || OWN_FAULTS.has(name)) return false;
  return name !== 'RuntimeError' || PASSED_ON.test(later.traceback?.exception.message ?? '');
}

/** Lines of progress that a job's word that it is done counts as. */
export const DONE_COUNTS = 2;

function isSoft(event: Event, marks: ReadonlyMap<string, Mark>): boolean {
  if (event.soft || event.meaning.role === 'soft') return true;
  if (event.outranks) return false;
  if (event.traceback?.ignored && event.progress.done) return true;
  const end = marks.get(event.key);
  if (!end) return false;
  const lines = end.lines - event.progress.lines;
  // Who is interrupted may yet say that the training is over.
  if (event.meaning.class === 'cancelled' && end.done && lines <= DONE_COUNTS) return false;
  const advanced = event.progress.step >= 0 && end.step > event.progress.step;
  return lines >= 2 || (lines >= 1 && advanced && !end.unfinished);
}

/** `RuntimeError`, and no more. */
function saysNothing(event: Event): boolean {
  return isDefault(event) && !event.meaning.certain && event.traceback?.exception.message === '';
}

/** What a failure counts as, the weightiest first. */
export const ROLES = ['fatal', 'ending', 'weak', 'echo', 'wrapper'] as const;

export function roleOf(incident: Incident): (typeof ROLES)[number] {
  const { meaning, mild } = incident.event;
  if (meaning.role === 'soft' || incident.last.traceback?.ignored || saysNothing(incident.event)) return 'wrapper';
  if (meaning.role !== 'fatal') return meaning.role;
  return mild && !incident.event.outranks ? 'weak' : 'fatal';
}
