import { doubtfulFailure, isLargestKnown, smallestExcluded } from './excluded.js';
import { rateOf, retriesOf } from './recommend.js';
import { exactLimit, type SearchState } from './search-state.js';
import { closingSize, SMALL } from './sizes.js';
import { verification } from './verification.js';

/** Below this a sample is more than a fresh process differs by, where a caching allocator is at work. */
const TINY = 20;
/** From this part of the predicted limit on a straight line tells the limit to within a sample or a per cent. */
const FORETOLD = 0.7;
/** Above what a fresh process took, the allocated bytes alone leave room for so many times as much at most: the rest is rounding. */
const PIECES = 1.05;
/** The same where segments can grow, for the line of a process that is yet to prove it: what lies in pieces is given back there. */
const GIVEN_BACK = 1.07;
/** Part of the speed of what is proved below which a size above it that gives back its cache in every step is not worth another start. */
const STRAINED = 0.95;

/** The largest size is known, and a fresh process has shown it. */
export function settled(state: SearchState): boolean {
  const { history, model } = state;
  const { largestVerified, top } = history;
  if (largestVerified === null) return false;
  if (largestVerified !== top && largestVerified < (model.caching ? TINY : SMALL)) return false;
  if (isPromise(state, largestVerified) || strain(state) !== null) return true;
  return isLargestKnown(state, largestVerified) && doubtfulFailure(state) === null;
}

/**
 * The part of its speed that the largest size loses, as it gives back its cache in every step: within 2 % of what is proved that is
 * worth no other start. Null: it loses little, more than that may fit, or a fork proves it.
 */
function strain(state: SearchState): number | null {
  const { history, model } = state;
  const { top, largestVerified: proved } = history;
  if (!model.grown || history.forks || top === null || proved === null || top <= proved || top > closingSize(proved))
    return null;
  if (retriesOf(history, top) === 0 || !isLargestKnown(state, top)) return null;
  const lost = 1 - (rateOf(history, top) ?? 0) / (rateOf(history, proved) || Number.NaN);
  return lost > 1 - STRAINED ? lost : null;
}

export function strainedNotes(state: SearchState): string[] {
  const lost = strain(state);
  if (lost === null) return [];
  return [
    `Micro-batch ${state.history.top} ran too, ${Math.round(100 * lost)} % slower, as it gives back its cache in every step: the search ended below it.`,
  ];
}

/**
 * Where segments can grow, the line through what a fresh process took leaves room for no size that would be worth another one, and next to
 * nothing lies in pieces that could be given back for more.
 */
function isPromise(state: SearchState, verified: number): boolean {
  const { model } = state;
  if (state.perLaunch || !model.grown || model.bent || model.elastic || model.flexible) return false;
  if (model.lower === null || model.upper === null) return false;
  return exactLimit(state) < closingSize(verified) && model.upper <= PIECES * verified;
}

/** The largest size is known as well as a process that has run other sizes can tell. */
export function bracketed(state: SearchState): boolean {
  const { top } = state.history;
  return top !== null && isLargestKnown(state, top);
}

/**
 * The line of the peaks is drawn from so near to the limit, and is so straight, that a fresh process may begin with the largest size
 * that it promises: what that proves need not be tried here before.
 */
export function isForetold(state: SearchState): boolean {
  const { history, model, perLaunch } = state;
  const { top, ceiling } = history;
  if (top === null || ceiling !== null || perLaunch || model.caching || model.elastic || model.lower === null)
    return false;
  const limit = exactLimit(state);
  if (top + 1 < FORETOLD * limit || verification(state).size <= (history.largestVerified ?? 0)) return false;
  // Where segments can grow, the process that proves the promise tells what is above it, too.
  if (model.grown)
    return Math.floor(limit) > top && model.points.length > 2 && (model.upper as number) <= GIVEN_BACK * limit;
  if (model.bent || !Number.isFinite(smallestExcluded(state))) return false;
  return (model.upper as number) <= PIECES * limit && verification(state).size > top;
}
