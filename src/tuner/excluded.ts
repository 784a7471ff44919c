import { slopeOf } from './curve-point.js';
import { PIECES } from './peaks.js';
import type { SearchState } from './search-state.js';
import { closingSize, isCloseEnough } from './sizes.js';
import { mayVary } from './step-peaks.js';

/** Part of the upper bound that a caching allocator can make use of at most: the rest goes into rounding. */
const USABLE = 0.993;
/** From this part of the upper bound on its line is drawn from near by. */
const DRAWN = 0.7;

/**
 * The smallest size that cannot fit: the one that failed, or the one that the peaks leave no room for. A peak is the highest of
 * many moments of a step, each with a line of its own, so it rises at least as fast from here on as it did up to here, unless it holds what is not needed. Endless: not known.
 */
function smallestImpossible(state: SearchState): number {
  const { history, model, parabola } = state;
  const { ceiling, top } = history;
  // What is above the largest that lasts by what lay in pieces may run, and is no proof.
  const least = (top ?? 0) + 1;
  const possible =
    model.lasting < least ? least : Math.max(least, Math.floor(model.possible ?? Number.POSITIVE_INFINITY) + 1);
  const seen = Math.min(ceiling ?? Number.POSITIVE_INFINITY, possible);
  const last = model.points.at(-1);
  if (isFull(state)) return Math.min(seen, closingSize(top as number));
  if (!last?.phased || model.elastic || model.upper === null || top === null || model.points.length < 3) return seen;
  if (parabola?.order === 3 && model.grown) {
    // Above what can be given back leaves, only what needs nothing back is a proof.
    const [proof, promise] = [parabola.reaches((1 - PIECES) * model.budgetBytes), parabola.promises(model.budgetBytes)];
    return Math.min(seen, Math.max(top + 1, Math.floor(Math.max(proof as number, promise as number)) + 1));
  }
  // What rises in a curve rises no more slowly than along the line, and through three points the curve itself is known.
  const upper =
    parabola?.order === 3 ? Math.min(model.upper, parabola.reaches(model.budgetBytes) as number) : model.upper;
  if (top < DRAWN * upper) return seen;
  const room = Math.floor((model.caching || model.grown ? USABLE : 1) * upper) + 1;
  // A library may do without a part of what the line counts: it tells a second process where to begin, and then a size has to fail.
  if (model.flexible && (history.largestVerified ?? 0) > (history.sizes[0] as number)) return seen;
  return Math.min(seen, Math.max(top + 1, room));
}

/**
 * Each size is a launch, and nothing lies in an allocator's cache: the largest fills the budget so nearly that 2 per cent more
 * would not fit even if the peak rose only half as steeply from here on. So no launch is spent on seeing that fail.
 */
function isFull({ history, model, perLaunch, counted }: SearchState): boolean {
  if (!perLaunch || !counted) return false;
  const [first, middle, last] = model.points.slice(-3);
  if (!first || !middle || !last || last.phased || last.caching || model.elastic || last.microBatch !== history.top)
    return false;
  const rise = Math.min(slopeOf(first, middle), slopeOf(middle, last));
  return last.total + (rise / 2) * (closingSize(last.microBatch) - last.microBatch) > model.budgetBytes;
}

/** The smallest size that cannot fit or is not allowed. */
export function smallestExcluded(state: SearchState): number {
  const { hi } = state.sizes;
  return Math.min(smallestImpossible(state), hi === null ? Number.POSITIVE_INFINITY : hi + 1);
}

/** Whether `size` is near enough to the largest that can fit. Near the largest that is allowed is not: that one is to be tried. */
export function isLargestKnown(state: SearchState, size: number): boolean {
  const bound = smallestImpossible(state);
  const { hi } = state.sizes;
  return size === hi || ((hi === null || bound <= hi) && isCloseEnough(size, bound, state.sizes));
}

/**
 * The size whose failure would end the search, where only processes that had run others have failed at it: such a process may hold more than
 * a fresh one (a tenth of a small budget on an H100: bench/results/upstream.md). Null: there is none, or a fresh process costs a start.
 */
export function doubtfulFailure(state: SearchState): number | null {
  const { history, model } = state;
  const { all, ceiling, largestVerified } = history;
  if (!model.grown || ceiling === null || largestVerified === null || !history.forks) return null;
  const tried = all.filter((o) => o.micro_batch === ceiling);
  // Where peaks vary from step to step a size that has failed once is none, however fresh the next process is.
  if (tried.length === 0 || tried.some((o) => o.fresh) || mayVary(ceiling, all, model.budgetBytes)) return null;
  return smallestExcluded(state) === ceiling && isLargestKnown(state, largestVerified) ? ceiling : null;
}
