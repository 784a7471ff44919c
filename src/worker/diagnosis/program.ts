import { canonical } from './canonical.js';
import type { Event } from './event.js';
import type { Program } from './signatures.js';

/** Who ran when an event happened, or where it failed, if what helps depends on it; null: nothing special. */
export function programOf(event: Event, programs: readonly Program[]): Program | null {
  const evidence = canonical(event.evidence);
  const frames = event.traceback?.frames ?? [];
  return (
    programs.find(({ texts }) => texts.some((text) => evidence.includes(text))) ??
    programs.find(({ files, functions }) =>
      frames.some(
        (frame) =>
          files.some((part) => frame.file.includes(part)) || functions.includes(frame.function.split('.').at(-1) ?? ''),
      ),
    ) ??
    programs.find(({ id }) => id === event.meaning.program) ??
    null
  );
}
