import { hasRisen } from './curve-point.js';
import { smallestExcluded } from './excluded.js';
import { spansPhases } from './model.js';
import { narrow } from './narrow.js';
import type { Parabola } from './parabola.js';
import { PIECES } from './peaks.js';
import { closing, exactLimit, type NextSize, ROOMY, type SearchState } from './search-state.js';
import { STRIDE_ALONG_LINE, secondSize } from './second-size.js';
import { closingSize, SMALL } from './sizes.js';
import { mayVary } from './step-peaks.js';

/** The peak may bend, however little a sample seems to cost: far below the limit a stride is at most this many times the size. */
const STRIDE = 48;
/** The same where the peak rises faster and faster (with the square of the size, say), or fell as libraries did with less. */
const BENT_STRIDE = 3;
/** From this part of the predicted limit on one stride may go all the way up; below, one to a third of it comes first. */
const FAR = 0.2;
/** Where every byte is counted: from this part of the limit on the limit itself is tried, below most of the way comes first. */
const NEAR = 0.7;
/** The size before the limit is so many times what fits at least: else the limit itself is next. */
const AWAY = 1.05;
/** So many times what fits is the next size along a curve at most: a bend that far off is not seen yet. */
const FAR_OFF = 16;
/** Parts of the way to the limit that these strides take, from below half of it and from above: the slope may be that much steeper up there. */
const HALFWAY = 0.6;
const MOST = 0.87;
/** Part of what it may take that the size to recommend is predicted to take at most: a process that has run others takes up to 2 per cent more than its line tells. */
const ADVISABLE = 0.985;
/** A step of less than this part tells nothing new. */
const LEAST = 0.01;
/** Part of the way from what fits to the upper bound that a stride takes where a caching allocator promises too little. */
const BETWEEN = 0.65;
/** Part of the upper bound that is tried last: rounding and the first fragments leave no more of it to any size. */
const HIGHEST = 0.985;
/** What fits reaches the promise of the segments from this part of it on. */
const ALMOST = 0.98;
/** Where more than so many times the promise may fit, it is no limit: on an H200 convolutional networks reached 1.2 times theirs. */
const PROMISING = 1.17;
/** Part of a size by which the one that is to end the search lies nearer, since the proof is for a little less than what fitted. */
const SPARE = 0.005;
/** From below this part of the upper bound no stride goes above that one: its line is drawn from too far off. Among few sizes a sample is much. */
const LOW = 0.8;
const FIRST = 0.93;
const FIRST_OF_FEW = 0.86;

/**
 * The next size to try between the largest that fits (there is one) and the smallest that does not, each predicted to
 * fit as long as anything can be predicted. Null: there is no size in between.
 */
export function nextSize(state: SearchState): NextSize | null {
  const { history, sizes } = state;
  const top = history.top as number;
  const excluded = smallestExcluded(state);
  const step = stepFrom(state, top, excluded);
  const size = sizes.down(Math.min(step.size, excluded - 1, state.model.lasting));
  if (size !== null && size > top) return { ...step, size };
  const up = sizes.up(top + 1);
  return up !== null && up < excluded ? { ...step, size: up } : null;
}

function stepFrom(state: SearchState, top: number, excluded: number): NextSize {
  const { ceiling } = state.history;
  if (ceiling === null) return climb(state, top, excluded);
  // A failure far up (of the script's own batch, say) tells less than a few measured sizes do.
  const step = 4 * top < ceiling && state.model.points.length > 0 ? climb(state, top, excluded) : null;
  return step && step.size < ceiling / 2 ? step : narrow(state, top, ceiling);
}

/** Nothing near has failed yet: rise in strides towards the predicted limit. */
function climb(state: SearchState, top: number, excluded: number): NextSize {
  const { model, perLaunch } = state;
  if (model.points.length === 0)
    return { size: 2 * top, purpose: 'climb', why: 'nothing is measured here, so the size doubles' };
  if (state.parabola) return climbCurve(state, state.parabola, top);
  if (model.lower === null) return secondSize(state, top);
  const limit = Math.min(model.lower, model.curved, excluded - 1);
  const bounded = spansPhases(model);
  if (perLaunch && !bounded) return climbByLaunches(state, top, limit);
  if (top < FAR * limit) {
    const size = Math.min(limit / 3, (model.bent || model.elastic ? BENT_STRIDE : STRIDE) * top);
    return { size, purpose: 'climb', why: `up to a third of the predicted limit, ${say(limit)}` };
  }
  if (top < NEAR * limit && (!bounded || (model.bent && !perLaunch))) {
    const roomy = advisableSize(state);
    if (roomy !== null && top < roomy && roomy < limit)
      return {
        size: roomy,
        purpose: 'speed',
        why: 'the largest that is predicted to leave the headroom: it may be the one to recommend',
      };
    const size = top + (top < limit / 2 ? HALFWAY : MOST) * (limit - top);
    const why = `most of the way to the predicted limit, ${say(limit)}: up here the peak may be no straight line`;
    return { size, purpose: 'climb', why };
  }
  if (bounded) return towardsBound(state, top, Math.min(excluded - 1, HIGHEST * (model.upper as number)));
  return towardsLimit(state, top, excluded);
}

/**
 * The size to recommend, as the line so far tells it: as good a test of that line as any other size most of the way up. Null: it is no line yet, or a size
 * that ran out of memory would cost a start.
 */
function advisableSize({ history, model, advisable }: SearchState): number | null {
  if (!model.grown || !history.forks || model.bent || model.elastic) return null;
  if (mayVary(model.lower as number, history.all, model.budgetBytes)) return null;
  return Math.min(model.largestWithin(ADVISABLE * advisable) as number, model.curved);
}

/** Each size is a launch, and one that fails costs no more than one that fits: strides as long as the line of the peaks can tell. */
function climbByLaunches(state: SearchState, top: number, limit: number): NextSize {
  const { model } = state;
  const roomy = Math.min(model.largestWithin(ROOMY * model.budgetBytes) as number, limit);
  const told = hasRisen(model.points) || model.points.at(-1)?.phased === true;
  const stride = Math.min(
    (model.bent ? BENT_STRIDE : STRIDE_ALONG_LINE) * top,
    told ? limit : Math.max(2 * top, limit / 3),
  );
  if (stride < roomy) return { size: stride, purpose: 'climb', why: `towards the predicted limit, ${say(limit)}` };
  if (roomy > AWAY * top)
    return { size: roomy, purpose: 'climb', why: `a little below the predicted limit, ${say(limit)}` };
  return towardsLimit(state, top, Number.POSITIVE_INFINITY);
}

/**
 * The same along a curve: a third size, or what is there at any, tells a line from a square, so the one before lies where the steeper of
 * the two ends. Then a size that leaves a little of the budget, and the limit.
 */
function climbCurve(state: SearchState, parabola: Parabola, top: number): NextSize {
  const { model, sizes } = state;
  const { budgetBytes, grown } = model;
  // More than what can be given back leaves would be no proof.
  const limit = grown ? parabola.reaches((1 - PIECES) * budgetBytes) : parabola.promises(budgetBytes);
  if (limit === null) return secondSize(state, top);
  const isWorth = (size: number, least = closingSize(top)) => size > least && (sizes.down(size) ?? 0) > top;
  const why = `the predicted limit, ${say(limit)}`;
  const roomy = Math.min(parabola.promises(ROOMY * budgetBytes) as number, FAR_OFF * top);
  if (isWorth(roomy, AWAY * top)) return { size: roomy, purpose: 'climb', why: `a little below ${why}` };
  if (isWorth(limit)) return { size: limit, purpose: 'bound', why: `${why}: larger ones should fail` };
  const most = HIGHEST * (parabola.reaches(budgetBytes) as number);
  return { ...between(top, most), why: `towards the upper bound, ${say(most)}, that the allocated bytes give` };
}

/** Every byte is counted: the limit itself, then a size that ends the search if it fails. */
function towardsLimit(state: SearchState, top: number, excluded: number): NextSize {
  const { model } = state;
  const size = exactLimit(state);
  if (size > top && size >= (1 + LEAST) * top - 1)
    return { size, purpose: 'climb', why: 'the largest size that is predicted to fit' };
  const most = model.grown ? Math.min(excluded - 1, HIGHEST * (model.upper as number)) : 0;
  if (most > closingSize(top))
    return { ...between(top, most), why: 'what lies in pieces may be given back for a little more' };
  return closing(top);
}

function between(top: number, most: number): Omit<NextSize, 'why'> {
  return { size: Math.max(closingSize(top), Math.round(top + BETWEEN * (most - top))), purpose: 'bound' };
}

/**
 * A caching allocator: up to what its segments promise, then one step that ends the search if it fails. If it fits, they promise too
 * little: strides towards what the allocated bytes leave possible (`most`) follow, each shorter than the one before.
 */
function towardsBound({ model }: SearchState, top: number, most: number): NextSize {
  const { lower, upper } = model as { lower: number; upper: number };
  const first = (upper < SMALL ? FIRST_OF_FEW : FIRST) * upper;
  const promised = Math.min(lower, most, top < LOW * upper ? first : most);
  if (top < ALMOST * promised)
    return { size: promised, purpose: 'climb', why: `up to ${say(lower)}, which the allocator's segments promise` };
  if (upper < SMALL || (top < lower / ALMOST && most < PROMISING * top))
    return closing(top, Math.max(top + 1, closingSize(top) - SPARE * top));
  return { ...between(top, most), why: `towards the upper bound, ${say(upper)}, that the allocated bytes give` };
}

function say(size: number): string {
  return Number.isFinite(size) ? `about ${Math.floor(size)}` : 'not in sight';
}
