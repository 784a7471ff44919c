import { type CurvePoint, isFree } from './curve-point.js';
import { APART } from './line.js';

/** A size that needs less than so many times what the smallest does, beside what is there at any, tells nothing of what a unit costs. */
const RISEN = 1.02;
/** Doublings and halvings that close in on where the curve meets the budget: to well within one. */
const STEPS = 64;

/** Bytes that are needed at a value: what is allocated, and what lies outside the caching allocator. */
interface Needed {
  microBatch: number;
  bytes: number;
}

/**
 * Bytes that are needed against a value such as the sequence length, which rise in a line, with its square (attention), or in between.
 * Two points allow either: the steeper reading is taken, a square from the smallest on. Three tell. The first may be what is there
 * at any value. What the caching allocator keeps for reuse is no part of it: near the budget it keeps whatever there is room for, and gives that back.
 */
export class Parabola {
  readonly #points: readonly Needed[];
  /** Of what is needed, the part that a caching allocator held beyond it, where it had room to. */
  readonly #pieces: number;

  constructor(points: readonly CurvePoint[], budgetBytes: number) {
    // A refused allocation is counted before the cache makes room for it: then more seems to lie outside the allocator than does.
    const context = Math.min(...points.map((one) => one.context));
    const needs = (one: CurvePoint): number => (one.phased ? context + one.active : one.total);
    const all = points.map((one) => ({ microBatch: one.microBatch, bytes: needs(one) }));
    const floor = all[0]?.bytes ?? 0;
    const base = points.at(-1)?.base ?? null;
    const foot = base === null || context + base >= floor ? [] : [{ microBatch: 0, bytes: context + base }];
    const still = foot[0]?.bytes ?? 0;
    const risen = all.filter(({ bytes }) => bytes - still >= RISEN * (floor - still));
    // What lies on a floor tells no slope: where the optimizer's step may be one, or where another size lies as low as the smallest.
    const hasFloor = points.some((one) => !one.phased) || risen.length < all.length - 1;
    const telling = risen.length >= 2 ? risen : [...all.slice(0, 1), ...risen];
    this.#points = farApart(hasFloor ? telling : [...foot, ...all]);
    const free = points.findLast((one) => isFree(one, budgetBytes));
    this.#pieces =
      free === undefined ? 0 : Math.max(0, free.total / Math.max(needs(free), free.context + free.flat) - 1);
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
    const [first, middle, last] = this.#points as [Needed, Needed, Needed?];
    if (last === undefined) {
      const rise = (middle.bytes - first.bytes) / (middle.microBatch ** 2 - first.microBatch ** 2);
      return middle.bytes + rise * (size ** 2 - middle.microBatch ** 2);
    }
    const before = (middle.bytes - first.bytes) / (middle.microBatch - first.microBatch);
    const now = (last.bytes - middle.bytes) / (last.microBatch - middle.microBatch);
    const bend = Math.max(0, (now - before) / (last.microBatch - first.microBatch));
    return last.bytes + (size - last.microBatch) * (now + bend * (size - middle.microBatch));
  }
}

/** The last point, the nearest before it that is far enough off for a slope, and the nearest before that one. */
function farApart(points: readonly Needed[]): Needed[] {
  const found = points.slice(-1);
  while (found.length < 3) {
    const next = found[0]?.microBatch ?? 0;
    const before = points.findLast(({ microBatch }) => microBatch < next && microBatch <= APART * next);
    if (before === undefined) return found;
    found.unshift(before);
  }
  return found;
}
