import type { MemoryPicture } from '../types.js';
import type { Figures } from './figures.js';
import { lastRefusal, type Signals } from './signals.js';

/** What CUDA's context, kernels and libraries take of their own in a process that torch says nothing about. */
const CONTEXT_BYTES = 1.5 * 1024 ** 3;

/** Who held the memory: from the message's figures, and from what is known of the device. Null: nothing is known. */
export function pictureOf(figures: Figures, signals: Signals): MemoryPicture | null {
  const refusal = lastRefusal(signals);
  const total = figures.total_bytes ?? signals.totalBytes ?? refusal?.budget_bytes ?? null;
  const free = figures.free_bytes ?? null;
  const asked = figures.tried_bytes ?? refusal?.size_bytes ?? null;
  const named = neighboursOf(figures, signals);
  const reserved = reservedInAll(figures);
  const own = figures.process_bytes ?? reserved ?? figures.allocated_bytes ?? refusal?.live_bytes ?? null;
  const others = othersOf(total, free, own, figures.process_bytes !== undefined, named);
  if (total === null && asked === null && own === null && named.length === 0) return null;
  return {
    total_bytes: total,
    process_bytes: own,
    others_bytes: others,
    free_bytes: free,
    asked_bytes: asked,
    unallocated_bytes: unallocated(figures),
    neighbours: named,
  };
}

function neighboursOf(figures: Figures, signals: Signals): MemoryPicture['neighbours'] {
  const names = new Map(signals.neighbours.map((p) => [p.pid, p.name]));
  if (figures.neighbours?.length) {
    return figures.neighbours.map(({ pid, bytes }) => ({ pid, name: names.get(pid) ?? null, bytes }));
  }
  return signals.neighbours.filter((p) => !p.ours).map((p) => ({ pid: p.pid, name: p.name, bytes: p.used_bytes }));
}

/** Held by the allocator in all: old messages say it, new ones name its two parts. */
function reservedInAll(figures: Figures): number | null {
  if (figures.unallocated_bytes !== undefined && figures.allocated_bytes !== undefined) {
    return figures.allocated_bytes + figures.unallocated_bytes;
  }
  return figures.reserved_bytes ?? null;
}

function unallocated(figures: Figures): number | null {
  if (figures.unallocated_bytes !== undefined) return figures.unallocated_bytes;
  if (figures.reserved_bytes === undefined || figures.allocated_bytes === undefined) return null;
  return Math.max(0, figures.reserved_bytes - figures.allocated_bytes);
}

function othersOf(
  total: number | null,
  free: number | null,
  own: number | null,
  whole: boolean,
  named: MemoryPicture['neighbours'],
): number | null {
  if (named.length > 0) return named.reduce((sum, p) => sum + p.bytes, 0);
  if (total === null || free === null || own === null) return null;
  // Where the message gives only the allocator's share, the process's own context is in the rest.
  const rest = total - free - own - (whole ? 0 : CONTEXT_BYTES);
  return Math.max(0, rest);
}
