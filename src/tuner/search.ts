import { lifeOf, type Probe } from '../contract/measurement.js';
import type { Rung } from '../contract/rung.js';
import type { EffectivePlan } from './accumulation.js';
import { nextSize } from './climb.js';
import { MemoryModel, readingsOf, spansPhases } from './model.js';
import { type Recommendation, rateOf, recommend } from './objective.js';
import { belowBrim, proof, retreat } from './proof.js';
import { isClosed } from './roof.js';
import type { Sight, Step } from './sight.js';
import { type Sizes, SMALL } from './sizes.js';
import type { Trail } from './trail.js';

/** Where the search on one rung stands. */
export type RungStep =
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
  trail: Trail;
  sizes: Sizes;
  plan: EffectivePlan;
  budgetBytes: number;
  headroomPct: number;
  /** Optimizer steps of a probe at least. */
  steps: number;
  /** One process can be asked for many sizes. */
  driven: boolean;
  /** The process of the last probe can take another one on this rung. */
  alive: boolean;
  perLaunch: boolean;
  /** A size to try, fresh, before anything is known: it may save the climb. */
  guess: number | null;
}

/** Below this a sample is more than a fresh process differs by, where a caching allocator is at work. */
const TINY = 20;
/** Sizes that one process is asked for on a rung at most. */
export const MOST_SIZES = 8;
/** Part of a size that a fresh process could not take from which on the largest that fits is proved before anything between. */
const NEAR_FAILURE = 0.85;
/** Part of what is in use at a step's start that gradients make up at least (Adam; more with plainer optimizers). */
export const GRADIENTS = 0.25;
/** Part of the largest size with headroom at which a survey has seen enough: near its best speed, and far from the limit. */
const SURVEYED = 0.7;

/**
 * The next step on one rung: the smallest size, a climb to the largest, its verification in a fresh process, and then,
 * in that process, the size to recommend.
 */
export function searchRung(search: RungSearch): RungStep {
  const { trail } = search;
  const floor = floorStep(search);
  if (floor) return floor;
  const sight = sightOf(search);
  const advice = adviceFor(search, sight);
  if (!settled(sight)) {
    // A process that has proved a size may not survive a larger one: what is to be recommended is measured first.
    if (search.alive && advice?.proved && 'measure' in advice) return measured(advice);
    const next =
      retreat(sight) ??
      belowBrim(sight, search.alive) ??
      wholeBatch(search, sight) ??
      (bracketed(sight) || isLong(search, sight) ? null : nextSize(sight));
    return next ? careful(search, { kind: 'probe', fresh: false, ...next }) : proofStep(search);
  }
  const max = trail.firmTop as number;
  if (advice === null) {
    const why = `micro-batches up to ${max} fit, but none of them can make up the effective batch`;
    return { kind: 'closed', why, evidence: trail.smallestFailure?.evidence ?? null };
  }
  return 'size' in advice ? { kind: 'found', size: advice.size, max, notes: advice.notes } : measured(advice);
}

interface Advice {
  /** The live process began with the largest size that is proved: it proves smaller ones on the way. */
  proved: boolean;
  max: number;
}

/** What to recommend if the largest size that is proved is the largest; null: none is, or none can make up the effective batch. */
function adviceFor(
  { trail, plan, alive, headroomPct }: RungSearch,
  { model }: Sight,
): (Advice & Recommendation) | null {
  const max = trail.firmTop;
  const choices = max === null ? null : plan.choices(max);
  if (max === null || !choices) return null;
  const last = trail.all.at(-1);
  const proved = alive && last !== undefined && (trail.provedBy(lifeOf(last)) ?? 0) >= max;
  return { proved, max, ...recommend({ trail, model, choices, max, headroomPct, cheap: proved }) };
}

function measured({ measure, why, max, proved }: Advice & { measure: number; why: string }): RungStep {
  return { kind: 'probe', size: measure, purpose: measure === max ? 'verify' : 'speed', fresh: !proved, why };
}

/**
 * The next step of a survey: what the rung is worth in samples/s, well away from the first size that fails. The size that
 * it finds is the fastest that was measured, and not verified.
 */
export function surveyRung(search: RungSearch): RungStep {
  const { trail, sizes, plan, budgetBytes, headroomPct } = search;
  const floor = floorStep(search);
  if (floor) return floor;
  const sight = sightOf(search);
  const top = trail.top as number;
  const roomy = sight.model.largestWithin(budgetBytes * (1 - headroomPct / 100)) ?? Number.POSITIVE_INFINITY;
  const most = Math.min(sizes.hi ?? Number.POSITIVE_INFINITY, plan.perDevice ?? Number.POSITIVE_INFINITY);
  const enough = Math.floor(Math.min(SURVEYED * roomy, most));
  if (trail.ceiling === null && top < enough) {
    const next = nextSize(sight);
    const size = next && sizes.down(Math.max(Math.min(next.size, enough), top + 1));
    if (next && size !== null && size > top) return careful(search, { kind: 'probe', fresh: false, ...next, size });
  }
  const choices = plan.choices(top);
  if (!choices) return { kind: 'closed', why: 'no size can make up the effective batch', evidence: null };
  const largest = choices.hi ?? top;
  if (trail.fits(largest).length === 0 && !trail.badBelow(top).includes(largest)) {
    const why = 'the largest size so far that the answer may have';
    return { kind: 'probe', size: largest, purpose: 'speed', fresh: false, why };
  }
  const measured = trail.sizes.filter((size) => choices.down(size) === size);
  const fastest = measured.toSorted((a, b) => (rateOf(trail, b) ?? 0) - (rateOf(trail, a) ?? 0))[0];
  return { kind: 'found', size: fastest ?? choices.lo, max: top, notes: [] };
}

/** The probe that decides, whether or not there is more to try. */
export function proofStep(search: RungSearch): RungStep & { kind: 'probe' } {
  return { kind: 'probe', fresh: true, ...proof(sightOf(search)) };
}

export function sightOf({ trail, sizes, perLaunch, budgetBytes, grows }: RungSearch): Sight {
  const model = new MemoryModel(readingsOf(trail.sizes.flatMap((size) => trail.fits(size))), budgetBytes, grows);
  return { trail, model, sizes, perLaunch };
}

/** Before anything fits: the guess, then the smallest size. Null once something does. */
export function floorStep({ trail, sizes, guess }: RungSearch): RungStep | null {
  if (trail.top !== null) return null;
  if (
    guess !== null &&
    trail.all.every((o) => o.micro_batch !== guess) &&
    guess < (trail.ceiling ?? Number.POSITIVE_INFINITY)
  ) {
    return { kind: 'probe', size: guess, purpose: 'floor', fresh: true, why: 'a size that probably fits and would do' };
  }
  if (trail.ceiling !== null && trail.ceiling <= sizes.lo) {
    const failure = trail.smallestFailure;
    const when = failure?.phase === 'load' ? ' while the job was still loading' : '';
    const grown = trail.all.some((o) => o.outcome === 'fit');
    const why = failure
      ? `micro-batch ${failure.micro_batch} ran out of memory${when}`
      : grown
        ? `micro-batch ${trail.ceiling} fits at first, but memory grows with every step`
        : `micro-batch ${trail.ceiling} is known not to fit`;
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

/** The largest size is known, and a fresh process has shown it. */
function settled(sight: Sight): boolean {
  const { trail, model, sizes } = sight;
  const { firmTop, top } = trail;
  if (firmTop === null) return false;
  if (firmTop !== top && trail.refuted === 0 && firmTop < (model.caching ? TINY : SMALL)) return false;
  if (isClosed(sight, firmTop)) return true;
  return firmTop === top && outOfReach(firmTop, model, sizes);
}

/** The largest size is known as well as a process that has run other sizes can tell. */
function bracketed(sight: Sight): boolean {
  const { trail, model, sizes } = sight;
  const { top } = trail;
  if (top === null) return false;
  // A fresh process could not take so little more that what is known to fit is to be proved before all else.
  if (
    spansPhases(model) &&
    trail.diedFresh &&
    trail.firmTop !== top &&
    trail.ceiling !== null &&
    top >= NEAR_FAILURE * trail.ceiling
  )
    return true;
  return isClosed(sight, top) || outOfReach(top, model, sizes);
}

/**
 * One process has been asked for so many sizes that another start, which proves what it took, costs less than going on in it: each
 * size that a process has not seen yet costs it a warm-up. Where nothing is measured there is no other way than to go on.
 */
function isLong({ alive }: RungSearch, { trail, model }: Sight): boolean {
  const last = trail.all.at(-1);
  if (!alive || !last || model.lower === null || trail.firmTop === trail.top) return false;
  return new Set(trail.all.filter((o) => lifeOf(o) === lifeOf(last)).map((o) => o.micro_batch)).size >= MOST_SIZES;
}

/**
 * The whole effective batch at once needs no accumulation, so no gradients wait while it runs: it may fit although sizes
 * below it, which would accumulate, do not. It is tried where it is predicted to.
 */
function wholeBatch({ trail, sizes, plan, budgetBytes }: RungSearch, { model }: Sight): Step | null {
  const size = plan.perDevice;
  const { lower } = model;
  const top = trail.top as number;
  if (size === null || size <= top || sizes.down(size) !== size || plan.probeAccumulation(top) === 1) return null;
  if (
    lower === null ||
    lower >= size ||
    top < 0.97 * Math.floor(lower) ||
    trail.all.some((o) => o.micro_batch === size)
  )
    return null;
  const gradients = GRADIENTS * (model.readings.at(-1)?.resident ?? 0);
  if ((model.peakAt(size) ?? Number.POSITIVE_INFINITY) - gradients > budgetBytes) return null;
  return { size, purpose: 'climb', why: 'the whole effective batch at once keeps no gradients waiting' };
}

/** Among a few sizes far apart the next one need not be seen to fail when even the upper bound leaves it out. */
function outOfReach(top: number, model: MemoryModel, sizes: Sizes): boolean {
  const next = sizes.up(top + 1);
  return next === null || (next > top + 1 && next > 1.25 * top && model.upper !== null && next > 1.1 * model.upper);
}

/** After a failure that may not have been memory the next size is clearly smaller, or one that is known to fit. */
function careful({ trail, sizes }: RungSearch, step: RungStep & { kind: 'probe' }): RungStep {
  const last = trail.all.at(-1);
  if (!last?.ambiguous || last.outcome !== 'device_oom') return step;
  const before = trail.all.at(-2);
  const size = before?.ambiguous ? sizes.lo : Math.max(sizes.lo, sizes.down(last.micro_batch / 2) ?? sizes.lo);
  if (step.size <= size || trail.fits(step.size).length > 0) return step;
  return {
    ...step,
    size,
    why: `the failure of ${last.micro_batch} may have had another cause: a much smaller size will tell`,
  };
}
