import { wordBreak } from './canonical.js';
import { QUOTING } from './exception.js';
import type { Signature, Use } from './signatures.js';
import type { Traceback } from './traceback.js';
import type { Line, Position, Window } from './window.js';
import { listsCauses, saysNoSuchName } from './words.js';

/** Characters (of canonical text) that a line broken off within a word or a name begins with. */
const HEAD = 24;

/** Whether a text of a signature that was found at a place is the signature, by what stands around it. */
export function fits(signature: Signature, place: Position, traceback: Traceback | null, window: Window): boolean {
  if (isMemory(signature) && quotes(place, traceback, window)) return false;
  if (listsCauses(window.at(place.index)?.canonical.slice(0, place.offset) ?? '')) return false;
  if (signature.framed.length > 0) {
    const inner = (traceback?.frames ?? []).slice(-3).map((frame) => `${frame.function} ${frame.source}`);
    inner.push(traceback?.tail ?? '');
    if (!signature.framed.some((text) => inner.some((frame) => frame.includes(text)))) return false;
  }
  if (signature.without.length > 0) {
    // What stands at the head of a line may be the end of what the line before it began to say.
    const line = window.around(place, place.offset < HEAD && !window.at(place.index)?.stamped ? 1 : 0, 0);
    if (signature.without.some((text) => line.includes(text))) return false;
  }
  if (signature.with.length === 0) return true;
  const scope = window.around(place, signature.near);
  return signature.with.some((text) => scope.includes(text));
}

function isMemory({ class: kind }: Signature): boolean {
  return kind === 'device_oom' || kind === 'host_oom';
}

/** The text only names what it seems to say. */
function quotes(place: Position, traceback: Traceback | null, window: Window): boolean {
  if (traceback && QUOTING.has(traceback.exception.name)) return true;
  return saysNoSuchName(window.around(place, 0));
}

/** The log ends where a text could follow that would make it another, less certain signature. */
export function doubted(
  { rank, class: kind }: Signature,
  found: readonly { signature: Signature }[],
  window: Window,
): boolean {
  if (window.endsWhole) return false;
  const others = found.map((place) => place.signature).filter((other) => other.rank < rank && other.class === kind);
  return others.some((other) => !other.certain && other.with.length > 0);
}

/** Whether words or lines begin and end where a signature says that they do. */
export function fitsEdges(use: Use, start: { line: Line; offset: number }, line: Line, end: number): boolean {
  if (use.start === 'word' && !wordBreak(start.line.text, start.offset)) return false;
  if (use.end === 'word' && !wordBreak(line.text, end)) return false;
  if (use.start === 'line' && start.offset > 0) return false;
  return use.end !== 'line' || end === line.canonical.length;
}
