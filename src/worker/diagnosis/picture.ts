import type { MemoryPicture } from '../../contract/diagnosis.js';
import { type Figures, reservedInAll } from './figures.js';
import { lastRefusal, type Signals } from './signals.js';

/** What CUDA's context, kernels and libraries take of their own in a process that torch says nothing about. */
const CONTEXT_BYTES = 1.5 * 1024 ** 3;

/** Who held the memory: from the message's figures, and from what is known of the device. Null: nothing is known. */
export function pictureOf(figures: Figures, signals: Signals): MemoryPicture | null {
  const refusal = lastRefusal(signals);
  const total = figures.total_bytes ?? signals.totalBytes ?? refusal?.budget_bytes ?? null;
  const free = figures.free_bytes ?? null;
  const asked = figures.tried_bytes ?? refusal?.size_bytes ?? null;
  const reserved = reservedInAll(figures) ?? null;
  const listed = neighboursOf(figures, signals, reserved);
  // What the budget refused, no neighbour lacks, whatever others hold of the device.
  const within = refusal?.by === 'budget';
  const { named, self } = within ? { ...listed, named: [] } : listed;
  const own = figures.process_bytes ?? self ?? reserved ?? figures.allocated_bytes ?? refusal?.live_bytes ?? null;
  const others = within ? 0 : othersOf(total, free, own, figures.process_bytes !== undefined, named);
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

/**
 * The other processes, by name where known. In a container torch cannot find itself among the pids and lists its own
 * process with the others: it is the one that holds what the allocator says it holds, and least more (contexts, graphs, NCCL).
 */
function neighboursOf(
  figures: Figures,
  signals: Signals,
  reserved: number | null,
): { named: MemoryPicture['neighbours']; self: number | null } {
  const names = new Map(signals.neighbours.map((p) => [p.pid, p.name]));
  const listed = figures.neighbours ?? [];
  if (listed.length === 0) {
    const others = signals.neighbours.filter((p) => !p.ours);
    return { named: others.map((p) => ({ pid: p.pid, name: p.name, bytes: p.used_bytes })), self: null };
  }
  const own = figures.process_bytes === undefined && reserved !== null ? reserved : null;
  const self = own === null ? undefined : listed.filter((p) => p.bytes >= own * 0.99).sort(byBytes)[0];
  const others = listed.filter((p) => p !== self);
  return {
    named: others.map(({ pid, bytes }) => ({ pid, name: names.get(pid) ?? null, bytes })),
    self: self?.bytes ?? null,
  };
}

const byBytes = (a: { bytes: number }, b: { bytes: number }): number => a.bytes - b.bytes;

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
