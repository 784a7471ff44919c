import type { FieldFamily, FieldName } from './signatures.js';
import { matchTemplate } from './template.js';

/** Figures of one message, in bytes (gpu: its index); a name that is absent was not said. */
export type Figures = Partial<Record<FieldName, number>> & { neighbours?: { pid: number; bytes: number }[] };

const MOST_NEIGHBOURS = 64;

/** Reads what the families' templates find in canonical text. The first template of a name that matches has the word. */
export function readFigures(families: readonly FieldFamily[], text: string): Figures {
  const figures: Figures = {};
  for (const family of new Set(families)) {
    for (const { name, templates } of family) {
      for (const template of templates) {
        if (name === 'neighbour') {
          figures.neighbours ??= [];
          for (let match = matchTemplate(template, text); match; match = matchTemplate(template, text, match.to)) {
            const [pid, bytes] = match.values;
            if (typeof pid === 'number' && typeof bytes === 'number' && figures.neighbours.length < MOST_NEIGHBOURS) {
              figures.neighbours.push({ pid, bytes });
            }
          }
          continue;
        }
        if (figures[name] !== undefined) break;
        const value = matchTemplate(template, text)?.values[0];
        if (typeof value === 'number') figures[name] = value;
      }
    }
  }
  return figures;
}

/** `own`, with what it leaves open taken from `other`, unless that speaks of another device. */
export function mergeFigures(own: Figures, other: Figures): Figures {
  if (own.gpu !== undefined && other.gpu !== undefined && own.gpu !== other.gpu) return own;
  const neighbours = own.neighbours?.length ? own.neighbours : other.neighbours;
  return { ...other, ...own, ...(neighbours ? { neighbours } : {}) };
}

/** Held by the allocator in all: torch up to 2.0 says so itself, since then it names the two parts. */
export function reservedInAll(figures: Figures): number | undefined {
  const { allocated_bytes: allocated, unallocated_bytes: unallocated, reserved_bytes: reserved } = figures;
  if (unallocated !== undefined && allocated !== undefined) return allocated + unallocated;
  return reserved;
}
