import { lifeOf, type Observation, type Probe } from '../contract/measurement.js';
import type { Rung } from '../contract/rung.js';
import type { EffectivePlan } from './accumulation.js';
import { nextSize } from './climb.js';
import { pointsOf } from './curve-point.js';
import { doubtfulFailure, smallestExcluded } from './excluded.js';
import { withLessWorkspace } from './less-workspace.js';
import { MemoryModel } from './model.js';
import { Parabola } from './parabola.js';
import { yetToCome } from './peaks.js';
import { type Recommendation, recommend } from './recommend.js';
import type { RungHistory } from './rung-history.js';
import { closing, exactLimit, type NextSize, type SearchState } from './search-state.js';
import { bracketed, isForetold, settled, strainedNotes } from './settled.js';
import { closingSize, type Sizes } from './sizes.js';
import { belowFilledBudget, verification } from './verification.js';

/** Where the search on one rung stands. */
export type RungDecision =
  | { kind: 'probe'; size: number; purpose: Probe['purpose']; fresh: boolean; why: string }
  | { kind: 'found'; size: number; max: number; notes: string[] }
  /** Not even the smallest size fits. */
  | { kind: 'closed'; why: string; evidence: string | null };

export interface RungSearch {
  rung: Rung;
  /** The caching allocator's segments can grow: next to nothing of the memory lies in pieces. */
  grows: boolean;
  /** Because oomtune turns that on. */
  turnsOn: boolean;
  history: RungHistory;
  sizes: Sizes;
  plan: EffectivePlan;
  budgetBytes: number;
  /** The peak may rise with the square of the size. */
  curved: boolean;
  headroomPct: number;
  /** Bytes that the size to recommend may take: what leaves the headroom. */
  advisable: number;
  /** Optimizer steps of a probe at least. */
  steps: number;
  /** One process can be asked for many sizes. */
  driven: boolean;
  /** The process of the last probe can take another one on this rung. */
  alive: boolean;
  perLaunch: boolean;
  /** Each byte is counted where it is taken. */
  counted: boolean;
  /** A size to try, fresh, before anything is known: it may save the climb. */
  guess: number | null;
}

/** Sizes that one process is asked for on a rung at most. */
export const MOST_SIZES = 8;
/** A process that begins with at most so many times what the one before it began with goes on from there, twice as far. */
const SHORT = 1.2;
/** Part of what is in use at a step's start that gradients make up at least (Adam; more with plainer optimizers). */
export const GRADIENTS = 0.25;

/**
 * The next step on one rung: the smallest size, a climb to the largest, its verification in a fresh process, and then,
 * in that process, the size to recommend.
 */
export function searchRung(search: RungSearch): RungDecision {
  const { history } = search;
  const floor = floorDecision(search);
  if (floor) return floor;
  const state = stateOf(search);
  const advice = adviceFor(search, state);
  const whole = wholeBatch(search, state);
  if (!settled(state) || whole) {
    // A larger size may kill the process that verified this one, so the size to recommend is measured first.
    if (search.alive && advice?.proved && 'measure' in advice) return measured(advice);
    const next =
      belowFilledBudget(state, search.alive) ??
      whole ??
      judgement(state) ??
      withLessWorkspace(state) ??
      (advice?.proved ? aboveProved(state) : null) ??
      (bracketed(state) || isForetold(state) || isLong(search, state) ? null : nextSize(state));
    return next ? careful(search, { kind: 'probe', fresh: false, ...next }) : verificationProbe(search);
  }
  const max = history.largestVerified as number;
  if (advice === null) {
    const why = `micro-batches up to ${max} fit, but none of them can make up the effective batch`;
    return { kind: 'closed', why, evidence: history.smallestFailure?.evidence ?? null };
  }
  if (!('size' in advice)) return measured(advice);
  return { kind: 'found', size: advice.size, max, notes: [...advice.notes, ...strainedNotes(state)] };
}

interface Advice {
  /** The live process began with the largest size that is proved: it proves smaller ones on the way. */
  proved: boolean;
  max: number;
}

/** What to recommend if the largest size that is proved is the largest; null: none is, or none can make up the effective batch. */
function adviceFor(
  { history, plan, alive, headroomPct, advisable }: RungSearch,
  { model }: SearchState,
): (Advice & Recommendation) | null {
  const max = history.largestVerified;
  const choices = max === null ? null : plan.choices(max);
  if (max === null || !choices) return null;
  const last = history.all.at(-1);
  const proved = alive && last !== undefined && (history.firstSizeOf(lifeOf(last)) ?? 0) >= max;
  return { proved, max, ...recommend({ history, model, choices, max, headroomPct, advisable, cheap: proved }) };
}

function measured({ measure, why, max, proved }: Advice & { measure: number; why: string }): RungDecision {
  return { kind: 'probe', size: measure, purpose: measure === max ? 'verify' : 'speed', fresh: !proved, why };
}

/** The probe that decides, whether or not there is more to try. */
export function verificationProbe(search: RungSearch): RungDecision & { kind: 'probe' } {
  return { kind: 'probe', fresh: true, ...verification(stateOf(search)) };
}

export function stateOf(search: RungSearch): SearchState {
  const { history, sizes, perLaunch, counted, budgetBytes, advisable, grows, curved } = search;
  const points = pointsOf(history.sizes.flatMap((size) => history.fits(size)));
  const model = new MemoryModel(points, budgetBytes, grows, history.pieces);
  return {
    history,
    model,
    sizes,
    perLaunch,
    advisable,
    counted,
    ...(curved ? { parabola: new Parabola(model.points, budgetBytes) } : {}),
  };
}

/** Before anything fits: the guess, then the smallest size. Null once something does. */
export function floorDecision({ history, sizes, guess }: RungSearch): RungDecision | null {
  if (history.top !== null) return null;
  if (
    guess !== null &&
    history.all.every((o) => o.micro_batch !== guess) &&
    guess < (history.ceiling ?? Number.POSITIVE_INFINITY)
  ) {
    return { kind: 'probe', size: guess, purpose: 'floor', fresh: true, why: 'a size that probably fits and would do' };
  }
  if (history.ceiling !== null && history.ceiling <= sizes.lo) {
    const failure = history.smallestFailure;
    const when = failure?.phase === 'load' ? ' while the job was still loading' : '';
    const ran = history.all.find((o) => o.outcome === 'fit');
    const why = failure
      ? `micro-batch ${failure.micro_batch} ran out of memory${when}`
      : `micro-batch ${history.ceiling} ${ran ? outgrown(ran) : 'is known not to fit'}`;
    return { kind: 'closed', why, evidence: failure?.evidence ?? null };
  }
  return {
    kind: 'probe',
    size: sizes.lo,
    purpose: 'floor',
    fresh: false,
    why: 'the smallest size tells whether anything fits',
  };
}

function outgrown(o: Observation): string {
  return yetToCome(o) > 0
    ? 'fits at first, but memory grows with every step'
    : 'takes more than the budget with what the driver and libraries hold';
}

/**
 * A fresh process has proved the largest size so far, and is still there: what is worth another process is what it takes 2 per cent
 * above that, or twice as much more as was too little before. Null: it has been tried, or every byte is counted, so that the line tells better.
 */
function aboveProved(state: SearchState): NextSize | null {
  const { history, model, sizes } = state;
  const { top } = history;
  if (!model.grown || model.lower === null || top === null || history.largestVerified !== top) return null;
  if (exactLimit(state) >= closingSize(top)) return null;
  const excluded = smallestExcluded(state);
  const before = history.begun.at(-2) ?? 0;
  const stride = top < SHORT * before ? 2 * (top - before) : 0;
  const above = Math.max(closingSize(top), Math.min(top + stride, (top + excluded) / 2));
  const size = sizes.down(Math.min(above, model.lasting));
  if (size === null || size <= top || size >= excluded) return null;
  return { ...closing(top, size), fresh: history.forks };
}

/** A fresh process decides on the size whose failure is to end the search. Null: that is decided, or something else ends it. */
function judgement(state: SearchState): NextSize | null {
  const size = doubtfulFailure(state);
  if (size === null) return null;
  return {
    size,
    purpose: 'bound',
    fresh: true,
    why: 'it failed in a process that had run other sizes: a fresh one decides',
  };
}

/**
 * One process has been asked for so many sizes that another start, which proves what it took, costs less than going on in it: each
 * size that a process has not seen yet costs it a warm-up. Where nothing is measured there is no other way than to go on.
 */
function isLong({ alive }: RungSearch, { history, model }: SearchState): boolean {
  const last = history.all.at(-1);
  if (!alive || !last || model.lower === null || history.largestVerified === history.top) return false;
  return new Set(history.all.filter((o) => lifeOf(o) === lifeOf(last)).map((o) => o.micro_batch)).size >= MOST_SIZES;
}

/**
 * The whole effective batch at once needs no accumulation, so no gradients wait while it runs: it may fit although sizes
 * below it, which would accumulate, do not. It is tried where it is predicted to.
 */
function wholeBatch({ history, sizes, plan, budgetBytes }: RungSearch, { model }: SearchState): NextSize | null {
  const size = plan.perDevice;
  const { lower } = model;
  const top = history.top as number;
  if (size === null || size <= top || sizes.down(size) !== size || plan.probeAccumulation(top) === 1) return null;
  if (
    lower === null ||
    lower >= size ||
    top < 0.97 * Math.floor(lower) ||
    history.all.some((o) => o.micro_batch === size)
  )
    return null;
  const gradients = GRADIENTS * (model.points.at(-1)?.resident ?? 0);
  if ((model.peakAt(size) ?? Number.POSITIVE_INFINITY) - gradients > budgetBytes) return null;
  return { size, purpose: 'climb', why: 'the whole effective batch at once keeps no gradients waiting' };
}

/** After a failure that may not have been memory the next size is clearly smaller, or one that is known to fit. */
export function careful({ history, sizes }: RungSearch, step: RungDecision & { kind: 'probe' }): RungDecision {
  const last = history.all.at(-1);
  if (!last?.ambiguous || last.outcome !== 'device_oom') return step;
  const before = history.all.at(-2);
  const size = before?.ambiguous ? sizes.lo : Math.max(sizes.lo, sizes.down(last.micro_batch / 2) ?? sizes.lo);
  if (step.size <= size || history.fits(step.size).length > 0) return step;
  return {
    ...step,
    size,
    why: `the failure of ${last.micro_batch} may have had another cause: a much smaller size will tell`,
  };
}
