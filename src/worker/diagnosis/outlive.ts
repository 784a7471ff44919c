import { type Incident, roleOf } from './incident.js';
import type { Reading } from './reader.js';
import { shapeOf } from './traceback.js';

/** Lines that no program prints about an error of its own. */
const MUCH = 1000;

/** Marks the failures behind which the log goes on as it did before: another run was appended to it, or the next of a loop. */
export function outlive(all: Incident[], reading: Reading): void {
  const survived = new Set<string>();
  for (const incident of all.toReversed()) {
    if (roleOf(incident) === 'wrapper') continue;
    const said = `${incident.last.key} ${shapeOf(incident.event.evidence)}`;
    if (!survived.has(said) && !isOutlived(incident, all, reading)) continue;
    incident.soft = true;
    survived.add(said);
  }
}

function isOutlived({ event, last }: Incident, all: Incident[], reading: Reading): boolean {
  const life = reading.life(last.key);
  if (!life) return false;
  const failedAt = last.traceback?.line ?? last.line;
  if (event.outranks) return life.after(failedAt, last.line).beganAnew;
  // Who started it says that it has failed; what comes before that may be of processes beside it.
  const echoes = all.filter((i) => i.last.line > last.line && i.event.meaning.role !== 'fatal').map((i) => i.last.line);
  const { wentOn, beganAnew } = life.after(failedAt, Math.max(last.line, ...echoes));
  if (beganAnew || (wentOn && !reading.several)) return true;
  if (event.meaning.class !== 'user_error' || reading.several) return false;
  return life.after(failedAt, last.line).beganAnew || (reading.lastWords.at(-1)?.line ?? 0) - last.line > MUCH;
}
