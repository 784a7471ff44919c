import { nextSize } from './climb.js';
import { rateOf } from './recommend.js';
import { careful, floorDecision, type RungDecision, type RungSearch, stateOf } from './search.js';

/** Part of the largest size with headroom at which a survey has seen enough: near its best speed, and far from the limit. */
const SURVEYED = 0.7;

/**
 * The next step of a survey: what the rung is worth in samples/s, well away from the first size that fails. The size that
 * it finds is the fastest that was measured, and not verified.
 */
export function surveyRung(search: RungSearch): RungDecision {
  const { history, sizes, plan } = search;
  const floor = floorDecision(search);
  if (floor) return floor;
  const state = stateOf(search);
  const top = history.top as number;
  const roomy = state.model.largestWithin(state.advisable) ?? Number.POSITIVE_INFINITY;
  const most = Math.min(sizes.hi ?? Number.POSITIVE_INFINITY, plan.perDevice ?? Number.POSITIVE_INFINITY);
  const enough = Math.floor(Math.min(SURVEYED * roomy, most));
  if (history.ceiling === null && top < enough) {
    const next = nextSize(state);
    const size = next && sizes.down(Math.max(Math.min(next.size, enough), top + 1));
    if (next && size !== null && size > top) return careful(search, { kind: 'probe', fresh: false, ...next, size });
  }
  const choices = plan.choices(top);
  if (!choices) return { kind: 'closed', why: 'no size can make up the effective batch', evidence: null };
  const largest = choices.hi ?? top;
  if (history.fits(largest).length === 0 && !history.failingBelow(top).includes(largest)) {
    const why = 'the largest size so far that the answer may have';
    return { kind: 'probe', size: largest, purpose: 'speed', fresh: false, why };
  }
  const measured = history.sizes.filter((size) => choices.down(size) === size);
  const fastest = measured.toSorted((a, b) => (rateOf(history, b) ?? 0) - (rateOf(history, a) ?? 0))[0];
  return { kind: 'found', size: fastest ?? choices.lo, max: top, notes: [] };
}
