import { type CurvePoint, isFree, RISEN, risenOf, sameGradients, slackOf, slopeOf } from './curve-point.js';
import { anchored, type Line, lineThrough, solve, steepest, valueAt } from './line.js';
import { roomForPieces } from './peaks.js';

/** What the peak of one size may differ by: libraries' own buffers, and the pages of an allocator whose segments can grow, in bytes. */
const PROCESS_NOISE = { libraries: 512 * 1024, pages: 48 * 1024 ** 2 };
/**
 * What an allocator whose segments can grow holds beside what is needed when memory is short, until it was seen: four of its pages, and a part of a large
 * budget (40 to 128 MiB in eight programs under 3 GiB, 258 and 483 MiB in two under 24: bench/results/checks.md).
 */
const LEFT_OVER = { bytes: 80 * 1024 ** 2, part: 0.015 };
/** Part of the budget: slopes that differ by more over the way to the limit show that the peak is no line. */
const BENT = 0.01;
/** A larger size that takes less than this part of what a smaller one took shows that the smaller one was given what it did not need. */
const LESS = 0.95;
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

/** A caching allocator whose phases were told apart: its lines bracket the limit. */
export function spansPhases({ caching, points }: MemoryModel): boolean {
  return caching && points.at(-1)?.phased === true;
}

/** Bytes by which the last two slopes differ over what is left to `limit`. */
function disagreement(points: readonly CurvePoint[], limit: number): number {
  const [first, middle, last] = points.slice(-3);
  if (!first || !middle || !last || !Number.isFinite(limit)) return 0;
  return Math.abs(slopeOf(middle, last) - slopeOf(first, middle)) * Math.max(0, limit - last.microBatch);
}
