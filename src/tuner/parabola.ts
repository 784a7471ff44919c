import type { CurvePoint } from './model.js';

/** A size whose peak differs by less than this part from the smallest's tells nothing of what a unit costs. */
const RISEN = 1.02;
/** Doublings and halvings that close in on where the curve meets the budget: to well within one. */
const STEPS = 64;

/**
 * Peak bytes against a value such as the sequence length, whose memory rises in a line, with its square (attention), or in between.
 * Two points allow either: the steeper reading is taken, a square from the smallest on. Three tell.
 */
export class Parabola {
  readonly #points: readonly CurvePoint[];

  constructor(points: readonly CurvePoint[]) {
    // The optimizer's step is a floor: what lies on it tells no slope.
    const floor = points[0]?.total ?? 0;
    const risen = points.filter((one) => one.total >= RISEN * floor);
    this.#points = risen.length >= 2 ? risen : [...points.slice(0, 1), ...risen];
  }

  /** How many points it goes through: 0 and 1 foretell nothing, 3 tell a line from a square. */
  get order(): number {
    return new Set(this.#points.map((one) => one.microBatch)).size;
  }

  /** Where it meets `bytes`, not rounded; null: it foretells nothing; endless: nowhere. */
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

  /** The curve through the last three points; of two a pure square; never one that rises ever more slowly. */
  #at(size: number): number {
    const [first, middle, last] = this.#points.slice(-3) as [CurvePoint, CurvePoint, CurvePoint?];
    if (last === undefined) {
      const [a, b] = [first, middle];
      const rise = (b.total - a.total) / (b.microBatch ** 2 - a.microBatch ** 2);
      return b.total + rise * (size ** 2 - b.microBatch ** 2);
    }
    const before = (middle.total - first.total) / (middle.microBatch - first.microBatch);
    const now = (last.total - middle.total) / (last.microBatch - middle.microBatch);
    const bend = Math.max(0, (now - before) / (last.microBatch - first.microBatch));
    return last.total + (size - last.microBatch) * (now + bend * (size - middle.microBatch));
  }
}
