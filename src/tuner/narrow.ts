import { hasRisen } from './curve-point.js';
import { spansPhases } from './model.js';
import { PIECES } from './peaks.js';
import { closing, exactLimit, type NextSize, ROOMY, type SearchState } from './search-state.js';
import { alongSteepest } from './second-size.js';
import { closingSize, nearEnoughTo } from './sizes.js';

/** What fits lies so near to a size that would end the search if it fitted that this one is tried at once. */
const NEARBY = 0.95;
/** What fits and what failed are so many times apart that the next size lies between them by its order of magnitude. */
const FAR_OFF = 4;
/** A prediction that is less than this above what fits tells nothing of the gap. */
const AHEAD = 1.02;

/** A size has failed: the next between it and the largest that fits. Where a new process takes it, it is proved by that alone. */
export function narrow(state: SearchState, top: number, ceiling: number): NextSize {
  const { history, model, sizes, perLaunch } = state;
  if (history.smallestFailing === null && model.lower !== null && model.lower >= ceiling) {
    // The bound is an earlier run's, who met more than a few steps: near enough below it is all there is to know.
    return { size: Math.ceil(0.98 * (ceiling - 1)), purpose: 'climb', why: `an earlier run could not take ${ceiling}` };
  }
  const between = (part: number): NextSize => ({
    size: top + part * (ceiling - top),
    purpose: 'bound',
    why: `between ${top}, which fits, and ${ceiling}, which does not`,
  });
  const near = nearEnoughTo(ceiling);
  const nearest = sizes.up(near);
  // It ran, though not for good, and what lay in pieces tells that there is room a little below it.
  if (
    history.filledBudgetAt === ceiling &&
    Number.isFinite(model.lasting) &&
    near > top &&
    (nearest ?? ceiling) < ceiling
  )
    return { ...between(1), size: nearest as number };
  const { parabola } = state;
  if (parabola) {
    if (top >= NEARBY * near && near > top) return { ...between(1), size: near };
    const failures = failedAbove(state, top).length;
    // What the allocator cannot give back differs by the program: after each failure as much more as it was to be at most.
    const limit = model.grown
      ? parabola.reaches((1 - (1 + failures) * PIECES) * model.budgetBytes)
      : failures > 1 // a prediction that failed twice is not followed a third time
        ? null
        : parabola.promises(ROOMY * model.budgetBytes);
    const isAhead = limit !== null && limit < ceiling && limit > AHEAD * top;
    return { ...between(1), size: Math.min(isAhead ? limit : (top + ceiling) / 2, near) };
  }
  if (model.lower === null && perLaunch && hasRisen(model.points) && failedAbove(state, top).length === 1) {
    const limit = alongSteepest(state, top);
    if (limit > AHEAD * top && limit < near) return { ...between(1), size: limit };
  }
  if (model.lower === null)
    return model.points.length > 0 && ceiling > FAR_OFF * top
      ? { ...between(1), size: Math.sqrt(top * ceiling) }
      : between(1 / 2);
  const why = `${ceiling} failed: the largest below it that is likely to fit`;
  // Whether this one fits or fails, what fits and what does not are then within 2 per cent.
  if (near > top && near <= closingSize(top)) return { size: near, purpose: 'bound', why };
  // A prediction that failed twice is not followed a third time.
  if (promisedAbove(state, top).length > 1) return between(1 / 2);
  if (spansPhases(model)) {
    const predicted = Math.min(near, model.lower);
    const size = top >= NEARBY * near ? near : predicted > AHEAD * top ? predicted : (top + near) / 2;
    return { size, purpose: 'bound', why };
  }
  const limit = exactLimit(state);
  if (model.grown && top >= NEARBY * near && near > top) return { size: near, purpose: 'bound', why };
  if (limit >= ceiling && !model.bent) return between(1 / 2);
  // A launch that leaves the headroom may be the answer as well.
  const roomy = perLaunch ? (model.largestWithin(ROOMY * model.budgetBytes) as number) : limit;
  const predicted = Math.min(near, roomy > AHEAD * top ? roomy : limit);
  if (predicted > AHEAD * top) return { size: predicted, purpose: 'bound', why };
  // The line ends here: only a library that does with less workspace could take more, and 2 per cent more tells whether it does.
  if ((model.grown || perLaunch) && !model.bent && limit < closingSize(top) && top < closingSize(limit))
    return closing(top);
  return { size: (top + near) / 2, purpose: 'bound', why };
}

/** The sizes above what fits that have failed. */
function failedAbove({ history }: SearchState, top: number): number[] {
  const failed = history.all.filter((o) => o.outcome !== 'fit' && o.micro_batch > top);
  return [...new Set(failed.map((o) => o.micro_batch))];
}

/** Those of them that a line had promised: before, at least half as large a one had been measured. */
function promisedAbove(state: SearchState, top: number): number[] {
  const { all } = state.history;
  return failedAbove(state, top).filter((size) => {
    const before = all.slice(
      0,
      all.findIndex((o) => o.micro_batch === size),
    );
    return before.some((o) => o.outcome === 'fit' && 2 * o.micro_batch >= size);
  });
}
