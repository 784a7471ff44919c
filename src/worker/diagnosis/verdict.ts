import { formatBytes } from '../../common/size.js';
import { isHost } from '../../contract/device-id.js';
import { canonical } from './canonical.js';
import type { Event } from './event.js';
import { grounded, groundedEvent, judged, ofMachine, type Status } from './grounds.js';
import { goesOn, type Incident, incidents, isConsequence, isDefault, ROLES, roleOf } from './incident.js';
import { outlive } from './outlive.js';
import { rankOf } from './prefix.js';
import { saysDone, saysRecovered } from './progress.js';
import type { LogContents } from './reader.js';
import { endSignal, failed, lastRefusal, type Signals, wasRefused } from './signals.js';
import { isMild, saysCannot, saysDealtWith, saysFailed } from './words.js';

/** What it was, and what tells it. */
export interface Verdict extends Status {
  /** The event that proves it; null where only the exit status, the ledger or nothing does. */
  event: Event | null;
  /** An error that was being handled when this one was raised. */
  caught: Event | null;
  /** Device OOMs that the job got over. */
  softOoms: Event[];
  /** Events that ended nothing. */
  soft: ReadonlySet<Event>;
  /** The job said that it went on on the CPU. */
  fallback: Event | null;
}

/** Weighs everything that is known. Ranked: how the supervisor ended it, refusals and the hook, the exit, the text. */
export function judge(contents: LogContents, signals: Signals, said: Event | null): Verdict {
  const all = incidents(contents.events, contents.marks).map((incident) => grounded(incident, signals));
  // How the process ended says more than what was printed.
  if (failed(signals) === null) outlive(all, contents);
  const hook = said && groundedEvent(said, signals);
  const softOoms = all.filter((i) => i.soft && i.event.meaning.class === 'device_oom').map((i) => i.event);
  const verdict = (status: Status, event: Event | null = null, caught: Event | null = null): Verdict => ({
    ...ofMachine(status, signals),
    event,
    caught,
    softOoms: softOoms.filter((soft) => soft !== event),
    soft: new Set(all.filter((i) => i.soft).flatMap((i) => [i.event, i.last])),
    fallback: contents.events.find((e) => e.id === 'cpu-fallback') ?? null,
  });
  if (signals.endedBy === 'cancel') return verdict({ class: 'cancelled', certain: true, told: 'it was cancelled' });
  if (failed(signals) === false && signals.endedBy !== 'timeout') {
    const killed = all.find((i) => i.event.outranks === 'exit');
    if (killed) return verdict(judged(killed.event, signals), killed.event);
    // Whatever else the log says, the job got over it.
    return { ...verdict({ class: 'ok', certain: true, told: null }), softOoms: softOomsOf(all) };
  }
  const found = choose(all, contents, failed(signals) === null);
  // That it was told to end is what its time limit does
  const chosen = signals.endedBy === 'timeout' && found?.event.meaning.class === 'killed' ? null : found;
  const told = chosen !== null && roleOf(chosen) !== 'wrapper';
  const last = told || (chosen === null && failed(signals) === null) ? null : revived(all, contents);
  if (hook && !outranks(chosen, hook, signals)) {
    const twin = all.find(
      (i) => i.event.meaning.class === hook.meaning.class && i.event.evidence.includes(firstLine(hook)),
    );
    return verdict(judged(hook, signals), twin ? { ...hook, ...pick(twin.event) } : hook);
  }
  const status = statusOf(signals);
  if (last && !status) return verdict({ ...judged(last.event, signals), certain: false }, last.event);
  if (!chosen) {
    if (status) return verdict(status);
    if (failed(signals) === null) {
      // What no signature knows may yet say that it is a failure; that the job went well would be the bolder guess.
      if (endsInFailure(contents, all))
        return verdict({ class: 'user_error', certain: false, told: 'the end of the log tells of a failure' });
      return verdict({ class: 'ok', certain: false, told: okSentence(all) });
    }
    if (wasRefused(signals)) return verdict({ class: 'device_oom', certain: false, told: refusalSentence(signals) });
    if (signals.lostBytes > 0) {
      const lost = formatBytes(signals.lostBytes);
      return verdict({
        class: 'disk_full',
        certain: false,
        told: `the disk of its log was full: ${lost} of its output were lost`,
      });
    }
    const how =
      signals.exitCode === null ? `was ended by ${endSignal(signals)}` : `ended with exit code ${signals.exitCode}`;
    const aborted = endSignal(signals) === 'SIGABRT';
    return verdict({
      class: 'user_error',
      certain: false,
      told: `it ${how}, with no error text`,
      ...(aborted ? { advice: 'crash' } : {}),
    });
  }
  const { role } = chosen.event.meaning;
  // Slurm tells a cancelled step SIGTERM, and says so.
  const ended = role === 'ending' || chosen.event.meaning.class === 'cancelled';
  if (status && role !== 'fatal' && !ended) {
    if (status.class !== chosen.event.meaning.class) return verdict(status);
    return verdict({ ...status, certain: status.certain || judged(chosen.event, signals).certain }, chosen.event);
  }
  if (status?.certain && status.class === 'host_oom') return verdict(status);
  return verdict(judged(chosen.event, signals), chosen.event, chosen.caught);
}

/** The last lines tell of a failure, and nothing after it that it was got over or that the job is done. */
function endsInFailure({ lastWords }: LogContents, all: Incident[]): boolean {
  const soft = new Set(all.filter((i) => i.soft).flatMap((i) => [i.event.line, i.last.line]));
  const last = lastWords.at(-1);
  const done = lastWords.findLastIndex(({ said }) => saysDone(said) || saysRecovered(said));
  const open = lastWords
    .slice(done + 1)
    .filter(
      ({ said, line }, i, words) =>
        !soft.has(line) && !isMild(said) && !saysDealtWith(canonical(said)) && !isCounted(words, i),
    );
  return (
    open.some(({ said }) => saysFailed(said)) || (last !== undefined && open.includes(last) && saysCannot(last.said))
  );
}

function okSentence(all: Incident[]): string {
  const over = all.findLast((i) => i.soft && roleOf(i) !== 'wrapper');
  if (!over) return 'no failure was found in the log';
  return `the log goes on behind the failure of line ${over.last.line}: it did not end the job, or another run was appended`;
}

/** One of a row of numbered items, of which a later one went well: `[7952/19796] [ERROR] …`, `[7953/19796] [OK] …`. */
function isCounted(words: LogContents['lastWords'], index: number): boolean {
  if (!ITEM.test(words[index]?.said ?? '')) return false;
  return words.slice(index + 1).some(({ said }) => ITEM.test(said) && !saysFailed(said));
}

const ITEM = /^\W?\d{1,9} ?(?:\/|of) ?\d{1,9}\W/;

function softOomsOf(all: Incident[]): Event[] {
  return all.filter((i) => i.event.meaning.class === 'device_oom').map((i) => i.event);
}

/** A device's OOM counts at any log level: many programs report it as a warning just before they give up. */
function isOom({ class: kind, certain }: Event['meaning']): boolean {
  return kind === 'device_oom' && certain;
}

/** The failure that the log is about: see the rules at each step. `unproved`: nothing says that the job failed at all. */
function choose(all: Incident[], contents: LogContents, unproved: boolean): Incident | null {
  const alive = all.filter((i) => !i.soft && !(unproved && i.event.mild && !isOom(i.event.meaning)));
  const runner = byRunner(alive);
  for (const role of ROLES) {
    const found = alive.filter((i) => roleOf(i) === role);
    if (found.length === 0) continue;
    if (role !== 'fatal') {
      const said = role === 'weak' ? lastOf(found) : (found[0] as Incident);
      return runner && said.last.line - runner.last.line < AFTERMATH ? runner : said;
    }
    const incident = raisedLast(alive, first(found, contents));
    // Who ends a job may do it as a keyboard would, or so that its parts fail one by one: then the reason stands before.
    const { line } = incident.last;
    const ender =
      alive.find((i) => roleOf(i) === 'ending' && i.last.line < line) ??
      alive.find((i) => i.event.outranks && i.last.line < line && line - i.last.line < AFTERMATH);
    return ender && (ender.event.outranks || incident.event.meaning.class === 'cancelled') ? ender : incident;
  }
  return null;
}

/** Lines in which a job that was cancelled fails one way or another. */
const AFTERMATH = 60;

/** What who runs the job said last of its end; of one message that says several things, the most. */
function byRunner(alive: Incident[]): Incident | null {
  const said = alive.filter((i) => i.event.outranks);
  const last = said.at(-1)?.last.line ?? 0;
  return said.filter((i) => i.last.line >= last - 1).sort((a, b) => a.event.rank - b.event.rank)[0] ?? null;
}

/** Of one process the error that it raised last ended it, also where its words alone would weigh less. */
function raisedLast(alive: Incident[], fatal: Incident): Incident {
  const { key, line } = fatal.last;
  if (!isDefault(fatal.event) || !fatal.last.traceback) return fatal;
  const last = alive.findLast((i) => i.last.key === key && i.last.traceback && !i.last.traceback.ignored);
  return last?.last.traceback && last.last.traceback.exceptionLine > line && roleOf(last) === 'weak' && !last.event.mild
    ? last
    : fatal;
}

/** The last; of several lines of one message the one that is certain. */
function lastOf(found: Incident[]): Incident {
  const last = found.at(-1) as Incident;
  return found.findLast((i) => i.event.meaning.certain && goesOn(i, last)) ?? last;
}

/**
 * An error that looked as if it had been got over, where nothing else tells why the job failed: ranks that are not told
 * apart print steps behind another's error; and a message that says `skipping` may yet be the last.
 */
function revived(all: Incident[], contents: LogContents): Incident | null {
  const soft = all.filter((i) => i.soft && i.event.meaning.role === 'fatal');
  if (contents.several) return soft.find((i) => !i.event.soft && i.last.traceback !== null) ?? null;
  return soft.findLast((i) => contents.marks.get(i.last.key)?.lines === i.event.progress.lines) ?? null;
}

/**
 * Of several processes, the one that failed first has the cause; within one process, the last error is what ended it.
 * Processes that the log does not tell apart are read as one, unless a launcher's summary says that there were several.
 */
function first(found: Incident[], contents: LogContents): Incident {
  const ends = new Map<string, Incident>();
  for (const incident of found) {
    const key = incident.last.key;
    const end = ends.get(key);
    if (end && ((key === '' && contents.several) || goesOn(end, incident) || isConsequence(end, incident))) continue;
    ends.set(key, incident);
  }
  const candidates = [...ends.values()].sort((a, b) => a.last.line - b.last.line);
  const root = contents.rootRank;
  if (root !== null) {
    const named = candidates.find((i) => rankOf(i.last.key) === root);
    if (named) return named;
  }
  return candidates[0] as Incident;
}

/** What the log says is later or larger than what one process's hook saw. */
function outranks(chosen: Incident | null, hook: Event, signals: Signals): boolean {
  // The log tells, before the same exception, what led to it.
  if (chosen && isDefault(hook) && !isDefault(chosen.event) && chosen.last.evidence.includes(firstLine(hook)))
    return true;
  if (hook.meaning.role === 'fatal') return false;
  return chosen !== null || statusOf(signals) !== null;
}

const CRASHES = new Set(['SIGSEGV', 'SIGILL', 'SIGFPE']);

/** What the exit alone says, if it says anything. */
function statusOf(signals: Signals): Status | null {
  if (signals.endedBy === 'timeout') return { class: 'timeout', certain: true, told: 'it ran past its time limit' };
  const signal = endSignal(signals);
  if (signal === 'SIGKILL') {
    if (signals.hostOom)
      return { class: 'host_oom', certain: true, told: 'the kernel killed it: the host ran out of memory' };
    return {
      class: 'killed',
      certain: signals.hostOom === false,
      told: 'it was ended by SIGKILL; nothing says by whom',
    };
  }
  if (signals.hostOom && failed(signals)) {
    return {
      class: 'host_oom',
      certain: false,
      told: 'the kernel killed one of its processes: the host ran out of memory',
    };
  }
  if (signal === 'SIGTERM')
    return { class: 'killed', certain: true, told: 'it was told to end (SIGTERM)', advice: 'terminated' };
  if (signal === 'SIGHUP')
    return { class: 'killed', certain: true, told: 'its terminal went away (SIGHUP)', advice: 'hung-up' };
  if (signal === 'SIGINT') return { class: 'cancelled', certain: true, told: 'it was interrupted (SIGINT)' };
  if (signal === 'SIGXCPU') {
    const told = 'it used up its processor time (SIGXCPU)';
    return { class: 'timeout', certain: true, told, advice: 'processor-time' };
  }
  if (signal === 'SIGBUS')
    return { class: 'shm', certain: false, told: 'bus error (SIGBUS): usually /dev/shm is full' };
  if (signal && CRASHES.has(signal) && wasRefused(signals)) {
    // Libraries that do not look at what an allocation gave them write to address 0.
    return { class: 'device_oom', certain: isHost(signals.device), told: crashSentence(signals, signal) };
  }
  if (signal && CRASHES.has(signal)) {
    return { class: 'user_error', certain: true, told: `it crashed in native code (${signal})`, advice: 'crash' };
  }
  if (signals.exitCode === 124 && !signals.signal)
    return { class: 'timeout', certain: true, told: 'it ran past its time limit (exit code 124)' };
  return null;
}

function refusalSentence(signals: Signals): string {
  return `it ended without error text after ${theRefusal(signals)}`;
}

function crashSentence(signals: Signals, signal: string): string {
  return `it crashed in native code (${signal}) after ${theRefusal(signals)}`;
}

function theRefusal(signals: Signals): string {
  const refusal = lastRefusal(signals);
  return refusal ? `a refused allocation of ${refusal.size_bytes} bytes` : 'a refused allocation';
}

function pick(event: Event): Pick<Event, 'evidence' | 'line' | 'key'> {
  return { evidence: event.evidence, line: event.line, key: event.key };
}

function firstLine(event: Event): string {
  return (event.traceback?.exception.message ?? event.evidence).split('\n')[0] as string;
}
