import type { Observation, Peaks, Probe } from '../contract/measurement.js';
import { BELIEVED, excessBytes, LASTING, spreadDoubt } from './step-peaks.js';

/**
 * From so many steps on a rise is believed to last for ever: a trainer's logs, a library's caches and the heap that they lie in
 * rise for longer than a warm-up, and come to an end.
 */
const LEAKING = 40;
/** A loop that fills the whole budget with what it leaves behind in so many steps cannot be helped by any size. */
const HORIZON = 10_000;
/** Where a size leaves nothing behind, one of at most so many times as many samples leaves nothing that matters. */
const ALIKE = 4;
/** A rise that comes to less than this part of the budget in LASTING steps is no reason to measure for longer. */
const NOISE = 0.0002;

/** The bytes to hold against the budget: driver level if it is known, else the best that the framework says. */
export function peakBytes(peaks: Peaks): number | null {
  if (peaks.total_bytes !== null) return peaks.total_bytes;
  if (peaks.reserved_bytes) return peaks.reserved_bytes;
  return allocatedBytes(peaks);
}

/** The most that the framework allocated, in bytes; null: not told. */
function allocatedBytes({ forward_backward_bytes: active, optimizer_bytes: optimizer }: Peaks): number | null {
  return active === null ? null : Math.max(active, optimizer ?? 0);
}

/** By how much more than measured a loop that leaves memory behind will hold after LASTING steps, in bytes; 0: it has ended before. */
export function growthBytes({ steps, short, rise_bytes_per_step: growth }: Observation): number {
  return steps < BELIEVED || short ? 0 : (growth ?? 0) * Math.max(0, LASTING - steps);
}

/** By how much more than measured LASTING steps take, in bytes: what the loop leaves behind, and higher peaks where they vary. */
export function yetToCome(o: Observation): number {
  return growthBytes(o) + excessBytes(o);
}

/** The highest peak within LASTING steps; null: not measured. */
export function lastingPeak(o: Observation): number | null {
  const peak = peakBytes(o.peaks);
  return peak === null ? null : peak + yetToCome(o);
}

/** Part of the budget that is left of it, or less, where an allocator that gives back its cache has filled it to the brim. */
const BRIM = 0.001;

/** Part of the budget that rounding and first fragments take even where segments can grow: of what they leave the rest can be given back. */
export const PIECES = 0.02;

/**
 * What a later step may have in pieces beyond the most that was seen: a part of that, and at most a part of the allocator's room, which is then given up. (Of 13 sizes on
 * an H100 and an H200 ten left less than half as much again in twenty steps, six of which ran out of memory within 200, and of the three others none: bench/results/checks.md.)
 */
const LATER = { pieces: 0.5, room: 0.012 };

/** The room that has to be left for what lies in pieces, by the most of it that was seen and all that the allocator may hold, in bytes. */
export function roomForPieces(pieces: number, most: number): number {
  return pieces + Math.min(LATER.pieces * pieces, LATER.room * most);
}

/**
 * Whether what is needed leaves room for what lies in pieces. `surely`: also for as much more as later steps were ever seen to have, whatever that
 * gives up. Null: either is not known.
 */
export function leavesRoomForPieces(peaks: Peaks, budgetBytes: number, surely = false): boolean | null {
  const { pieces_bytes: pieces = null, reserved_bytes: reserved } = peaks;
  const needed = peaks.needed_bytes ?? allocatedBytes(peaks);
  const total = peakBytes(peaks);
  if (needed === null || pieces === null || reserved === null || total === null) return null;
  const most = budgetBytes - Math.max(0, total - reserved);
  return needed + (surely ? (1 + LATER.pieces) * pieces : roomForPieces(pieces, most)) <= most;
}

/**
 * It ran only because a caching allocator gave back its cache after the first step, and either went on to, or filled the budget to
 * the brim: how the fragments lay decided, and in the next process they lie otherwise. No proof that it fits, unless what is needed leaves room for them.
 */
export function fillsBudget(o: Observation, budgetBytes: number): boolean {
  if (o.outcome !== 'fit' || o.alloc_retries === 0 || !o.peaks.reserved_bytes) return false;
  const leaves = leavesRoomForPieces(o.peaks, budgetBytes);
  if (leaves !== null) return !leaves;
  return o.restless === true || (peakBytes(o.peaks) ?? 0) > (1 - BRIM) * budgetBytes;
}

/**
 * Where segments can grow, what lies in pieces can be given back, so that an allocator that does so in one step does so in the next: if
 * the allocated bytes leave room, or where it was the workspace of a library that was refused, as in every later process. (ViT ran
 * for ten steps of a fresh process with 98.4 per cent of the budget allocated, and not for 200: bench/results/search-gpu.md.)
 */
export function canGiveBack(o: Observation, budgetBytes: number): boolean {
  const leaves = leavesRoomForPieces(o.peaks, budgetBytes);
  if (leaves !== null) return leaves;
  if (o.workspaces_refused) return true;
  const { reserved_bytes: reserved } = o.peaks;
  const [allocated, total] = [allocatedBytes(o.peaks), peakBytes(o.peaks)];
  if (allocated === null || total === null || !reserved) return true;
  const context = Math.max(0, total - reserved);
  return context + allocated + yetToCome(o) <= (1 - PIECES) * budgetBytes;
}

/**
 * It fitted the steps that it was measured for, and will not fit those that follow; or the driver and libraries took more than the budget
 * left beside what was allocated, which no allocation could be refused for.
 */
export function outgrows(o: Observation, budgetBytes: number): boolean {
  return (lastingPeak(o) ?? 0) > budgetBytes;
}

/**
 * The loop leaves so much behind with every step that whatever size it runs at, its training ends in want of memory. Fewer steps
 * than it takes to be sure are enough where the budget would be full by then. A loop that has ended by itself leaves no more, and what new
 * shapes of inputs leave behind comes to an end.
 */
export function leaks(o: Observation, budgetBytes: number): boolean {
  if (o.outcome !== 'fit' || o.steps < BELIEVED || (o.growth_bytes_per_step ?? 0) * HORIZON <= budgetBytes)
    return false;
  return !o.short && !o.grows_with_shapes && (o.steps >= LEAKING || stepsToFull(o, budgetBytes) < LEAKING);
}

/** Steps until a loop that leaves memory behind has filled the budget. */
export function stepsToFull(o: Observation, budgetBytes: number): number {
  const room = Math.max(0, budgetBytes - (peakBytes(o.peaks) ?? 0));
  return o.steps + Math.floor(room / Math.max(1, o.growth_bytes_per_step ?? 0));
}

/** What a probe whose memory rises or varies is told by: from how many bytes on it is measured for longer, and for how long. */
export type Doubt = Pick<
  Probe,
  | 'growth_bytes'
  | 'growth_steps'
  | 'leak_bytes'
  | 'leak_steps'
  | 'spread_bytes'
  | 'spread_steps'
  | 'retry_steps'
  | 'budget_bytes'
>;

/** `steady`: a size near this one was seen to leave nothing behind, so that this one is not measured for longer. `proves`: a fit may be the answer. */
export function doubtOf(budgetBytes: number, { steady = false, proves = true } = {}): Doubt {
  return {
    growth_bytes: (NOISE * budgetBytes) / LASTING,
    growth_steps: steady ? 0 : BELIEVED,
    leak_bytes: budgetBytes / HORIZON,
    leak_steps: steady ? 0 : LEAKING,
    ...spreadDoubt(budgetBytes, proves),
    retry_steps: proves ? BELIEVED : 0,
    budget_bytes: budgetBytes,
  };
}

/**
 * Whether a size near this one was measured for long enough and left nothing behind. What single steps leave and take
 * again is then no reason to measure this one for as long, which costs more than all else near the limit.
 */
export function isSteady(microBatch: number, seen: readonly Observation[], budgetBytes: number): boolean {
  const judged = seen.filter((o) => o.outcome === 'fit' && o.steps >= BELIEVED);
  if (judged.some((o) => mayGrow(o, budgetBytes))) return false;
  return judged.some((o) => o.micro_batch * ALIKE >= microBatch);
}

/** It seems to grow: more steps will tell whether it does. */
export function mayGrow({ rise_bytes_per_step: growth }: Observation, budgetBytes: number): boolean {
  return (growth ?? 0) > doubtOf(budgetBytes).growth_bytes;
}
