import type { Event } from './event.js';
import { type Incident, roleOf } from './incident.js';
import { saysOver } from './progress.js';
import type { LogContents } from './reader.js';
import { shapeOf } from './traceback.js';

/** Lines that no program prints about an error of its own. */
const MUCH = 1000;
/** Lines that a scheduler's or a launcher's summary takes. */
const SUMMARY = 40;
/** Lines behind what a program may get on without that show that it did. */
const GOT_ON = 10;
/** Lines behind a failure in which its launcher tells of it. */
const TOLD_WITHIN = 400;

/** Marks the failures behind which the log goes on as it did before: another run was appended to it, or the next of a loop. */
export function outlive(all: Incident[], contents: LogContents): void {
  const survived = new Set<string>();
  for (const incident of all.toReversed()) {
    const said = `${incident.last.key} ${shapeOf(incident.event.evidence)}`;
    if (!survived.has(said) && !isOutlived(incident, all, contents)) continue;
    incident.soft = true;
    if (roleOf(incident) !== 'wrapper') survived.add(said);
  }
}

function isOutlived(incident: Incident, all: Incident[], contents: LogContents): boolean {
  const { event, last } = incident;
  if (event.passing && gotOn(event, contents)) return true;
  const life = contents.life(last.key);
  if (!life) return false;
  const failedAt = last.traceback?.line ?? last.line;
  if (event.outranks) return life.after(failedAt, last.line).beganAnew;
  if (roleOf(incident) === 'wrapper') return life.after(failedAt, last.line + SUMMARY).beganAnew;
  // Who started it says that it has failed; what comes before that may be of processes beside it.
  const echoes = all.filter((i) => i.last.line > last.line && i.event.meaning.role !== 'fatal').map((i) => i.last.line);
  const { wentOn, beganAnew } = life.after(failedAt, Math.max(last.line, ...echoes));
  if (beganAnew || (wentOn && !contents.several)) return true;
  // torch tags what a rank raises, and nothing else that it prints.
  const told = echoes.filter((line) => line < last.line + TOLD_WITHIN);
  if (last.key !== '' && told.length > 0 && contents.life('')?.after(failedAt, Math.max(...told)).beganAnew)
    return true;
  if (event.meaning.class !== 'user_error' || contents.several) return false;
  return life.after(failedAt, last.line).beganAnew || (contents.lastWords.at(-1)?.line ?? 0) - last.line > MUCH;
}

function gotOn({ line }: Event, { lastWords }: LogContents): boolean {
  if ((lastWords.at(-1)?.line ?? 0) - line > GOT_ON) return true;
  return lastWords.some((word) => word.line > line && saysOver(word.said));
}
