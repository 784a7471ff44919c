import type { Observation, Peaks } from '../contract/measurement.js';
import { lastingPeak, roomForPieces, yetToCome } from './peaks.js';

/** The peaks of one size that fitted, in bytes; of a loop whose peaks rise or vary from step to step, those that it will come to. */
export interface CurvePoint {
  microBatch: number;
  /** Everything counted: what the budget is compared with. */
  total: number;
  /** Peak of forward and backward: affine in the micro-batch from small sizes on. `total` where phases were not told apart. */
  active: number;
  /** Peak of the optimizer's step: a constant that hides the slope at small sizes. 0 where unknown. */
  flat: number;
  /** Of what forward and backward need, what is there at any size: weights and the optimizer's state. Null: unknown. */
  base: number | null;
  /** Total less what the framework reserved: contexts and the like. */
  context: number;
  /** In use when a step starts; null if unknown. */
  resident: number | null;
  /** What a step needs where libraries do with the least of workspace; null: not known, or all that is allocated. */
  needed: number | null;
  /** Measured with gradients kept from one micro-batch to the next. */
  accumulating: boolean;
  phased: boolean;
  caching: boolean;
  retries: number;
  /** Libraries that took part do with less memory where it is short. */
  flexible: boolean;
}

interface Line {
  at: number;
  value: number;
  slope: number;
}

/** What the peak of one size may differ by: libraries' own buffers, and the pages of an allocator whose segments can grow, in bytes. */
const PROCESS_NOISE = { libraries: 512 * 1024, pages: 48 * 1024 ** 2 };
/**
 * What an allocator whose segments can grow holds beside what is needed when memory is short, until it was seen: four of its pages, and a part of a large
 * budget (40 to 128 MiB in eight programs under 3 GiB, 258 and 483 MiB in two under 24: bench/results/checks.md).
 */
const LEFT_OVER = { bytes: 80 * 1024 ** 2, part: 0.015 };
/** Where a caching allocator comes this near to the budget it reuses what it holds, and its peak tells no slope. */
const SATURATED = 0.97;
/** Part of the budget: slopes that differ by more over the way to the limit show that the peak is no line. */
const BENT = 0.01;
/** A larger size that takes less than this part of what a smaller one took shows that the smaller one was given what it did not need. */
const LESS = 0.95;
/** Sizes nearer than this part of the larger to it tell no slope: what one process takes more than another decides it. */
export const APART = 0.75;
/** Without separate phases: the rise over the lowest peak that shows that a point has left the optimizer's floor. */
const RISEN = 1.05;

/**
 * Peak bytes against micro-batch, fitted on the fly. Two lines bracket the largest size that fits: the line through the
 * *allocated* peaks of forward and backward, with nothing lost to fragmentation, gives an upper bound; the line through
 * the driver-level peaks, with all of today's fragmentation growing on, gives a lower one. Where no caching allocator is
 * in between (host memory) the two are the same.
 */
export class MemoryModel {
  /** Largest size (not rounded) that is predicted to fit by the driver-level line; null: no line yet. */
  readonly lower: number | null;
  /** The same by the line of allocated peaks; never below `lower`. */
  readonly upper: number | null;
  /** A caching allocator cuts memory into pieces: peaks near the budget saturate, and only a fresh process tells what fits. */
  readonly caching: boolean;
  /** A caching allocator whose segments can grow: near the limit it gives back unused pieces, so there may be room above `lower`. */
  readonly grown: boolean;
  /** Bytes by which the peak of one size may differ from process to process. */
  readonly processNoise: number;
  /** Libraries took memory at some size that they did without at a larger one (cuDNN's workspaces): a peak is no proof of what is needed. */
  readonly elastic: boolean;
  /** A library was at work that does with less workspace where memory is short: sizes above the line may fit all the same. */
  readonly flexible: boolean;
  /**
   * Largest size (not rounded) whose need, without workspace that libraries do without, fits, beside what was seen to lie in pieces: none above it
   * does, or lasts. Null: the need is not known.
   */
  readonly possible: number | null;
  /** The same with what an allocator holds beside it when memory is short. */
  readonly likely: number | null;
  readonly #need: Line | null;
  /** The most that was held beside the allocator, in bytes. */
  readonly #context: number;
  /** Memory does not rise in a line: the last two slopes predict different limits. */
  readonly bent: boolean;
  readonly #active: Line | null;
  readonly #slack: Line | null;

  constructor(
    readonly points: readonly CurvePoint[],
    readonly budgetBytes: number,
    grows = false,
    /** The most that lay in pieces when memory was short, in bytes; null: not seen. */
    readonly pieces: number | null = null,
  ) {
    const cached = points.some((r) => r.caching);
    this.caching = cached && !grows;
    this.processNoise = cached ? PROCESS_NOISE.pages : PROCESS_NOISE.libraries;
    const needed = points.filter(
      (r) => !points.some((larger) => larger.microBatch > r.microBatch && larger.active < LESS * r.active),
    );
    this.elastic = needed.length < points.length;
    this.flexible = points.some((r) => r.flexible);
    const alike = sameGradients(needed);
    const risen = alike.every((r) => r.phased) ? alike : risenOf(alike);
    // A size that libraries had less workspace for lies on no line.
    const free = risen.filter((r) => isFree(r, budgetBytes));
    const usable = this.flexible && free.length > 1 ? free : risen;
    const unsaturated = usable.filter((r) => isFree(r, budgetBytes));
    const anchor = usable === risen ? points.at(-1) : usable.at(-1);
    this.#active = anchored(
      lineThrough(usable, (r) => r.active),
      anchor,
      (r) => r.active,
    );
    const last = unsaturated.at(-1) ?? usable.at(-1);
    const slack = lineThrough(unsaturated, slackOf);
    this.#slack = slack ?? (last ? { at: last.microBatch, value: slackOf(last), slope: 0 } : null);
    this.lower = this.largestWithin(budgetBytes);
    const context = Math.min(...usable.map((r) => r.context));
    const active = this.#active;
    this.upper = active && this.lower !== null ? Math.max(this.lower, solve(active, budgetBytes - context)) : null;
    this.grown = cached && grows;
    // Where no library takes what it does without, all that was allocated is needed; that says more than the lines once the pieces were seen.
    const needs = (r: CurvePoint): number | null =>
      r.needed ?? (pieces === null || r.flexible || !r.phased ? null : Math.max(r.active, r.flat));
    const told = sameGradients(points).filter((r) => needs(r) !== null);
    // Kernels are loaded when they are first used, so that what is held beside the allocator rises from size to size, and not in a line.
    const contexts = told.map((r) => r.context);
    const need = (some: readonly CurvePoint[], beside: number) =>
      lineThrough(some, (r) => (needs(r) as number) + beside);
    // At the least sizes the optimizer's step needs the most, whatever the size: from there on the line is none too steep.
    const bound = need(told, Math.min(...contexts));
    this.possible = bound && solve(bound, budgetBytes - (pieces ?? 0));
    const clear = told.filter((r) => (needs(r) as number) >= RISEN * r.flat);
    this.#context = Math.max(...contexts);
    this.#need = need(clear, this.#context);
    this.likely = this.likelyWithin(budgetBytes);
    this.bent = this.lower !== null && disagreement(usable, this.lower) > BENT * budgetBytes;
  }

  /** Bytes that one more sample adds to the peak of forward and backward; null: no line yet. */
  get bytesPerSample(): number | null {
    return this.#active?.slope ?? null;
  }

  /** Largest size that leaves room for what lies in pieces in later steps, too; endless: that was not seen. */
  get lasting(): number {
    return (this.pieces === null ? null : this.likely) ?? Number.POSITIVE_INFINITY;
  }

  /** Predicted largest size whose driver-level peak stays within `bytes`; null: no line yet. */
  largestWithin(bytes: number): number | null {
    const active = this.#active;
    const slack = this.#slack;
    if (!active || !slack) return null;
    const slope = active.slope + Math.max(0, slack.slope);
    const value = active.value + valueAt({ ...slack, slope: Math.max(0, slack.slope) }, active.at);
    return solve({ at: active.at, value, slope }, bytes);
  }

  /** Largest size that is likely to do with so many bytes, given back what can be, and if libraries do with the least of workspace; null: the need is not known. */
  likelyWithin(bytes: number): number | null {
    const { pieces, budgetBytes } = this;
    const leftOver = Math.max(LEFT_OVER.bytes, LEFT_OVER.part * budgetBytes);
    const beside = pieces === null ? leftOver : roomForPieces(pieces, budgetBytes - this.#context);
    return this.#need && solve(this.#need, bytes - beside);
  }

  /**
   * Largest size that fits if the peak goes on as steeply as it ever rose from one measured size to the next: where it
   * bends upwards, the line through sizes far apart promises too much. Null: no two sizes.
   */
  steepestWithin(bytes: number): number | null {
    const last = this.points.at(-1);
    const near = this.points.filter(
      (one, at) => last && (one.microBatch >= last.microBatch / 4 || at >= this.points.length - 2),
    );
    const slope = steepest(near.map(({ microBatch, total }) => [microBatch, total]));
    return last && slope > 0 ? last.microBatch + (bytes - last.total) / slope : null;
  }

  /** Largest size that fits if the peak goes on bending upwards as it did over the last three sizes; endless: it did not. */
  get curved(): number {
    const [first, middle, last] = this.points.slice(-3);
    if (!first || !middle || !last || !this.bent) return Number.POSITIVE_INFINITY;
    const [before, now] = [slopeOf(first, middle), slopeOf(middle, last)];
    return now > before
      ? last.microBatch + (this.budgetBytes - last.total) / (2 * now - before)
      : Number.POSITIVE_INFINITY;
  }

  /** Driver-level peak between measured sizes by interpolation (safe), beyond the last by the line; null: unknown. */
  peakAt(size: number): number | null {
    const after = this.points.find((r) => r.microBatch >= size);
    const before = this.points.findLast((r) => r.microBatch <= size);
    if (after && before) {
      if (after === before) return after.total;
      const part = (size - before.microBatch) / (after.microBatch - before.microBatch);
      return before.total + part * (after.total - before.total);
    }
    if (after) return after.total;
    if (!this.#active || !this.#slack) return null;
    return valueAt(this.#active, size) + valueAt(this.#slack, size);
  }
}

/** A caching allocator was not so near to the budget that it had to reuse what it holds: its peak tells a slope. */
export function isFree({ caching, total, retries }: CurvePoint, budgetBytes: number): boolean {
  return !caching || (total < SATURATED * budgetBytes && retries === 0);
}

/** A caching allocator whose phases were told apart: its lines bracket the limit. */
export function spansPhases({ caching, points }: MemoryModel): boolean {
  return caching && points.at(-1)?.phased === true;
}

/**
 * The points of the observations that fitted and could be measured, ascending: of each size the last in a fresh process, or the last
 * where there is none. A process that runs a size again may hold more than it did the first time.
 */
export function pointsOf(observations: readonly Observation[]): CurvePoint[] {
  const bySize = new Map<number, CurvePoint>();
  const told = [...observations.filter((o) => !o.fresh), ...observations.filter((o) => o.fresh)];
  for (const o of told) {
    const point = pointOf(o);
    if (point) bySize.set(o.micro_batch, point);
  }
  return [...bySize.values()].sort((a, b) => a.microBatch - b.microBatch);
}

function pointOf(o: Observation): CurvePoint | null {
  const total = lastingPeak(o);
  if (o.outcome !== 'fit' || total === null) return null;
  const {
    forward_backward_bytes: forwardBackwardBytes,
    optimizer_bytes: optimizerBytes,
    resident_bytes: residentBytes,
    needed_bytes: needed = null,
  } = o.peaks;
  const growth = yetToCome(o);
  const active = forwardBackwardBytes === null ? total : forwardBackwardBytes + growth;
  const flat = forwardBackwardBytes === null ? 0 : (optimizerBytes ?? 0) + growth;
  const caching = (o.peaks.reserved_bytes ?? 0) > 0;
  const held = caching ? (o.peaks.reserved_bytes as number) + growth : Math.max(active, flat);
  return {
    microBatch: o.micro_batch,
    total,
    active,
    flat,
    base: baseOf(o.peaks),
    context: Math.max(0, total - held),
    resident: residentBytes,
    needed,
    accumulating: o.accumulation > 1,
    phased: forwardBackwardBytes !== null,
    caching,
    retries: o.alloc_retries,
    flexible: o.flexible_workspaces === true,
  };
}

/** The optimizer's step holds weights, gradients, its state, and at most once more as much as the gradients. */
function baseOf({ optimizer_bytes: optimizer, gradient_bytes: gradients }: Peaks): number | null {
  return optimizer === null || gradients === null ? null : Math.max(0, optimizer - 2 * gradients);
}

/** What the driver level holds beyond the framework's own peak: contexts, cached blocks, fragments. */
function slackOf(r: CurvePoint): number {
  return Math.max(0, r.total - Math.max(r.active, r.flat));
}

/**
 * A line must not mix peaks with and without resident gradients. Those without (the larger sizes, if there are both) do
 * as soon as there are two; until then those with gradients give a line that is a little too high: safe.
 */
function sameGradients(points: readonly CurvePoint[]): readonly CurvePoint[] {
  const without = points.filter((r) => !r.accumulating);
  return without.length > 1 || without.length === points.length ? without : points.filter((r) => r.accumulating);
}

/** Whether the last peak has clearly left the lowest. */
export function hasRisen(points: readonly CurvePoint[]): boolean {
  return (points.at(-1)?.total ?? 0) >= RISEN * Math.min(...points.map((r) => r.total));
}

/** Of peaks that mix the phases only those tell a slope that have left the optimizer's floor. */
function risenOf(points: readonly CurvePoint[]): readonly CurvePoint[] {
  const floor = Math.min(...points.map((r) => r.total));
  const clear = points.filter((r) => r.total >= RISEN * floor);
  const [first, last] = [points[0], points.at(-1)];
  if (clear.length !== 1 || points.length > 2 || !first || !last) return clear;
  // Of two sizes, the one that has left it may have left it at once: then the peak grows nearly as the size does.
  const chord = (last.total - first.total) / (last.microBatch - first.microBatch);
  return chord >= 0.7 * (last.total / last.microBatch) ? [first, last] : clear;
}

/** The steepest rise between neighbours, bytes for each sample; 0 where nothing rises. Pairs of size and bytes, ascending. */
export function steepest(points: readonly (readonly [number, number])[]): number {
  let most = 0;
  for (const [at, [size, bytes]] of points.entries()) {
    const before = points[at - 1];
    if (before && size > before[0]) most = Math.max(most, (bytes - before[1]) / (size - before[0]));
  }
  return most;
}

/** The last point, and the nearest before it that is far enough off for a slope that noise does not decide. */
function wellApart(points: readonly CurvePoint[]): [CurvePoint, CurvePoint] | null {
  const last = points.at(-1);
  if (!last) return null;
  const before = points.findLast((r) => r.microBatch <= APART * last.microBatch) ?? points.at(-2);
  return before && before !== last ? [before, last] : null;
}

/** Bytes by which the last two slopes differ over what is left to `limit`. */
function disagreement(points: readonly CurvePoint[], limit: number): number {
  const [first, middle, last] = points.slice(-3);
  if (!first || !middle || !last || !Number.isFinite(limit)) return 0;
  return Math.abs(slopeOf(middle, last) - slopeOf(first, middle)) * Math.max(0, limit - last.microBatch);
}

/** Bytes for each sample by which the peak of forward and backward rises from one size to the next. */
export function slopeOf(a: CurvePoint, b: CurvePoint): number {
  return (b.active - a.active) / (b.microBatch - a.microBatch);
}

function lineThrough(points: readonly CurvePoint[], value: (r: CurvePoint) => number): Line | null {
  const pair = wellApart(points);
  if (!pair) return null;
  const [before, last] = pair;
  const slope = (value(last) - value(before)) / (last.microBatch - before.microBatch);
  return { at: last.microBatch, value: value(last), slope };
}

/** A line that leaves out the last point, made to go through it. */
function anchored(line: Line | null, last: CurvePoint | undefined, value: (r: CurvePoint) => number): Line | null {
  return line && last && last.microBatch > line.at
    ? { at: last.microBatch, value: value(last), slope: line.slope }
    : line;
}

function valueAt(line: Line, size: number): number {
  return line.value + line.slope * (size - line.at);
}

/** The size at which the line meets `bytes`; endless where it does not rise. */
function solve(line: Line, bytes: number): number {
  if (line.slope <= 0) return line.value <= bytes ? Number.POSITIVE_INFINITY : line.at;
  return line.at + (bytes - line.value) / line.slope;
}
