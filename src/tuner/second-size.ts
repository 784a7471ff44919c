import { hasRisen } from './model.js';
import type { NextSize, SearchState } from './search-state.js';

/** So many times the first size is the second at most. */
const STRIDE = 4;
/** The same where each is a launch: one that fails costs no more than one that fits. The less memory the first left, the less. */
const STRIDE_OF_LAUNCHES = 32;

const WHY = 'a second point tells what a sample costs';

/** One size is known: the next is chosen so that even a line through the origin stays within the budget. */
export function secondSize({ model, perLaunch }: SearchState, top: number): NextSize {
  const last = model.points.at(-1);
  if (perLaunch && last && !hasRisen(model.points)) {
    const left = 1 - last.total / model.budgetBytes;
    return { size: Math.max(STRIDE, STRIDE_OF_LAUNCHES * left ** 2) * top, purpose: 'climb', why: WHY };
  }
  const stride = perLaunch ? STRIDE_OF_LAUNCHES : STRIDE;
  let bound = Number.POSITIVE_INFINITY;
  if (last) {
    const base = last.resident ?? 0;
    const perSample = Math.max(last.active - base, 1) / last.microBatch;
    const byRay = last.microBatch + (0.9 * model.budgetBytes - last.total) / perSample;
    // A peak that does not move is the optimizer's: it hides how little a sample costs, and doubling is safe enough.
    const hidden = model.points.length > 1 && !hasRisen(model.points) ? (stride / 2) * top : 0;
    bound = Math.max(hidden, byRay, (0.9 * model.budgetBytes * last.microBatch) / last.total);
  }
  return { size: Math.min(stride * top, bound), purpose: 'climb', why: WHY };
}
