import { type CurvePoint, hasRisen, slopeOf } from './curve-point.js';
import type { MemoryModel } from './model.js';
import { type NextSize, ROOMY, type SearchState } from './search-state.js';
import { closingSize } from './sizes.js';

/** So many times the first size is the second at most. */
const STRIDE = 4;
/** The same where each is a launch: one that fails costs no more than one that fits. The less memory the first left, the less. */
const STRIDE_OF_LAUNCHES = 32;
/** So many times the last size is the next at most where each is a launch and a line can be drawn. */
export const STRIDE_ALONG_LINE = 100;

/** A peak that is higher by less than this part of it, and of what it left, may be so by chance. */
const BARELY = { peak: 0.02, left: 0.1 };

/** Part of the way to a limit that may be nearer than it looks, and so many times the last size it is at least. */
const MOST = 0.87;
const FAR = 1.5;

const WHY = 'a second point tells what a sample costs';

/** One size is known: the next is chosen so that even a line through the origin stays within the budget, or a failure tells as much as a fit. */
export function secondSize(state: SearchState, top: number): NextSize {
  const { model, perLaunch, parabola } = state;
  const { points, budgetBytes } = model;
  const last = points.at(-1);
  const next = (size: number): NextSize => ({ size, purpose: 'climb', why: WHY });
  if (perLaunch && last && !hasRisen(points)) {
    const left = 1 - last.total / budgetBytes;
    const isFirst = points.length === 1 || parabola !== undefined;
    const stride = (isFirst ? Math.max(STRIDE, STRIDE_OF_LAUNCHES * left ** 2) : STRIDE_OF_LAUNCHES) * top;
    return next(Math.min(stride, parabola ? stride : shortOf(alongChord(points, budgetBytes), model)));
  }
  if (perLaunch && last && !parabola)
    return next(Math.min(STRIDE_ALONG_LINE * top, Math.max(closingSize(top), alongSteepest(state, top))));
  const stride = perLaunch ? STRIDE_OF_LAUNCHES : STRIDE;
  let bound = Number.POSITIVE_INFINITY;
  if (last) {
    const base = last.resident ?? 0;
    const perSample = Math.max(last.active - base, 1) / last.microBatch;
    const byRay = last.microBatch + (0.9 * budgetBytes - last.total) / perSample;
    // A peak that does not move is the optimizer's: it hides how little a sample costs, and doubling is safe enough.
    const hidden = points.length > 1 && !hasRisen(points) ? (stride / 2) * top : 0;
    bound = Math.max(hidden, byRay, (0.9 * budgetBytes * last.microBatch) / last.total);
  }
  return next(Math.min(stride * top, bound));
}

/** Where the steepest rise between two sizes leaves a little of the budget. */
export function alongSteepest({ model }: SearchState, top: number): number {
  const limit = model.steepestWithin(ROOMY * model.budgetBytes) as number;
  return limit < FAR * top ? limit : shortOf(limit, model);
}

/**
 * Less than what the rise from one size to the next promises, where the smaller of the two may have been on the floor of what is there at any size:
 * from there on the rise is steeper. Then most of the way, and at most twice as far as if samples took all that is in use.
 */
function shortOf(limit: number, { points, budgetBytes }: MemoryModel): number {
  const [first, middle, last] = points.slice(-3);
  if (!first || !middle || !last) return limit;
  const floor = slopeOf(first, middle);
  if (floor < 0 || floor >= slopeOf(middle, last) / 2) return limit;
  const { microBatch: top, total } = last;
  return Math.min(top + MOST * (limit - top), (2 * ROOMY * budgetBytes * top) / total);
}

/** Where the line through the first and the last point leaves a little of the budget, or fills it; endless: the last has not left the first clearly. */
function alongChord(points: readonly CurvePoint[], budgetBytes: number): number {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return Number.POSITIVE_INFINITY;
  const chance = Math.min(BARELY.peak * first.total, BARELY.left * (budgetBytes - first.total));
  if (last.total < first.total + chance) return Number.POSITIVE_INFINITY;
  const slope = (last.total - first.total) / (last.microBatch - first.microBatch);
  const least = closingSize(last.microBatch);
  const ends = [ROOMY * budgetBytes, budgetBytes].map((bytes) => last.microBatch + (bytes - last.total) / slope);
  return ends.find((size) => size > least) ?? least;
}
