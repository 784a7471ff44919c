import { APART, type CurvePoint, isFree } from './model.js';

/** A size that needs less than so many times what the smallest does tells nothing of what a unit costs. */
const RISEN = 1.02;
/** Doublings and halvings that close in on where the curve meets the budget: to well within one. */
const STEPS = 64;

/**
 * What forward and backward cannot do without, in bytes: what is allocated, and what lies outside the caching allocator. What that one keeps
 * for reuse is no part of it: near the budget it keeps whatever there is room for, and gives that back.
 */
const needed = (one: CurvePoint): number => (one.phased ? one.context + one.active : one.total);

/**
 * Bytes that are needed against a value such as the sequence length, which rise in a line, with its square (attention), or in between.
 * Two points allow either: the steeper reading is taken, a square from the smallest on. Three tell.
 */
export class Parabola {
  readonly #points: readonly CurvePoint[];
  /** Of what is needed, the part that a caching allocator held beyond it, where it had room to. */
  readonly #pieces: number;

  constructor(points: readonly CurvePoint[], budgetBytes: number) {
    const floor = points[0] ? needed(points[0]) : 0;
    const risen = points.filter((one) => needed(one) >= RISEN * floor);
    // What lies on a floor tells no slope: where the optimizer's step may be one, or where another size lies as low as the smallest.
    const hasFloor = points.some((one) => !one.phased) || risen.length < points.length - 1;
    const telling = risen.length >= 2 ? risen : [...points.slice(0, 1), ...risen];
    this.#points = farApart(hasFloor ? telling : points);
    const free = points.findLast((one) => isFree(one, budgetBytes));
    this.#pieces =
      free === undefined ? 0 : Math.max(0, free.total / Math.max(needed(free), free.context + free.flat) - 1);
  }

  /** How many points it goes through: 0 and 1 foretell nothing, 3 tell a line from a square. */
  get order(): number {
    return this.#points.length;
  }

  /** Where the peak meets `bytes` if the allocator goes on to hold as much beyond what is needed; not rounded; null: nothing is foretold; endless: nowhere. */
  promises(bytes: number): number | null {
    return this.reaches(bytes / (1 + this.#pieces));
  }

  /** The same of what is needed. */
  reaches(bytes: number): number | null {
    const last = this.#points.at(-1);
    if (last === undefined || this.order < 2) return null;
    if (this.#at(last.microBatch) >= bytes) return last.microBatch;
    let [low, high] = [last.microBatch, 2 * last.microBatch];
    for (let step = 0; this.#at(high) < bytes; step += 1) {
      if (step === STEPS) return Number.POSITIVE_INFINITY;
      [low, high] = [high, 2 * high];
    }
    for (let step = 0; step < STEPS; step += 1) {
      const middle = (low + high) / 2;
      if (this.#at(middle) < bytes) low = middle;
      else high = middle;
    }
    return low;
  }

  /** The curve through three points; of two a pure square; never one that rises ever more slowly. */
  #at(size: number): number {
    const [first, middle, last] = this.#points as [CurvePoint, CurvePoint, CurvePoint?];
    if (last === undefined) {
      const [a, b] = [first, middle];
      const rise = (needed(b) - needed(a)) / (b.microBatch ** 2 - a.microBatch ** 2);
      return needed(b) + rise * (size ** 2 - b.microBatch ** 2);
    }
    const before = (needed(middle) - needed(first)) / (middle.microBatch - first.microBatch);
    const now = (needed(last) - needed(middle)) / (last.microBatch - middle.microBatch);
    const bend = Math.max(0, (now - before) / (last.microBatch - first.microBatch));
    return needed(last) + (size - last.microBatch) * (now + bend * (size - middle.microBatch));
  }
}

/** The last point, the nearest before it that is far enough off for a slope, and the nearest before that one. */
function farApart(points: readonly CurvePoint[]): CurvePoint[] {
  const found = points.slice(-1);
  while (found.length < 3) {
    const before = points.findLast((one) => one.microBatch <= APART * (found[0]?.microBatch ?? 0));
    if (before === undefined) return found;
    found.unshift(before);
  }
  return found;
}
