import type { Observation } from '../contract/measurement.js';
import type { MemoryModel } from './model.js';
import { lastingPeak, peakBytes } from './peaks.js';
import type { RungHistory } from './rung-history.js';
import type { Sizes } from './sizes.js';
import { mayVary } from './step-peaks.js';

/** Part of the best samples/s that the recommended size must be seen to reach: 3 per cent, less what a measurement is off. */
const FAST = 0.975;
/** Parts of the largest size at which the speed is looked at when the largest sizes are slow. */
const INTERIOR = [0.9, 0.8, 0.65, 0.5];
/** A size this much larger than a good one is worth another probe. */
const WORTHWHILE = 1.02;
/** How often the speed of one size is measured on a busy machine: once more tells chance from cause, twice costs time. */
const TRIES = 2;
/** The most that speed noise can excuse. */
const MOST_NOISE = 0.2;
/** Probes that may follow the verification only to tell speeds apart, the one that proves the answer among them. */
const MOST_AFTER_VERIFICATION = 4;
/** Below this part of the largest size the largest good one is likely to be slow: a third try, well below the last, may save it. */
const FAR_BELOW = 0.6;
const WELL_BELOW = 0.95;
/** Sizes nearer than this to a measured one tell nothing new about speed. */
const SAME = 0.03;

/** Parts of what the recommended size may hold up to which its peak is predicted: pieces make a line less certain. */
const NEAR_LINE = 0.995;
const BELOW_LINE = 0.98;

export interface Choice {
  history: RungHistory;
  model: MemoryModel;
  /** The micro-batches that the answer may have. */
  choices: Sizes;
  /** The largest that fits; a member of the searched sizes, not necessarily a choice. */
  max: number;
  headroomPct: number;
  /** What leaves it, bytes. */
  advisable: number;
  /** Whether a probe of a smaller size costs no launch. */
  cheap: boolean;
}

/** Either a size that has to be measured (or verified) first, or the recommended one. */
export type Recommendation = { measure: number; why: string } | { size: number; notes: string[] };

/**
 * The largest size that leaves the headroom free and runs within 3 per cent of the best samples/s measured on the rung.
 * A size that makes the allocator retry in the steady state is never it.
 */
export function recommend(choice: Choice): Recommendation {
  const { history, choices } = choice;
  const limit = limitOf(choice);
  const spent = probesAfterVerification(choice);
  const measured = history.sizes.filter((size) => size <= choice.max && choices.down(size) === size);
  const good = measured.filter((size) => leavesRoom(history, size, limit, choice) && retriesOf(history, size) === 0);
  // A prediction that is wrong by a little each time would never settle.
  const tries = (good.at(-1) ?? 0) < FAR_BELOW * choice.max ? 3 : 2;
  const wanted = spent >= tries ? null : largestWithHeadroom(choice, limit, measured, good, spent);
  if (wanted !== null && wanted > WORTHWHILE * (good.at(-1) ?? 0) && history.fits(wanted).length === 0) {
    return { measure: wanted, why: `the largest that leaves ${choice.headroomPct} % of the budget free` };
  }
  const best = Math.max(0, ...history.sizes.map((size) => rateOf(history, size) ?? 0));
  const proved = good.filter((size) => history.isVerified(size));
  // Speeds that differ between processes would never settle: in the end only verified sizes count.
  const open = spent >= MOST_AFTER_VERIFICATION && proved.length > 0 ? proved : good;
  // A difference smaller than one size's own speed noise means nothing.
  const enough = FAST - speedNoise(choice, good.at(-1));
  const fast = open.filter((size) => (speedNear(choice, size) ?? best) >= enough * best);
  const pick = fast.at(-1) ?? open.toSorted((a, b) => (rateOf(history, a) ?? 0) - (rateOf(history, b) ?? 0)).at(-1);
  if (pick === undefined) return lastResort(choice, measured);
  const largest = good.at(-1) as number;
  const spare = choice.cheap && spent < MOST_AFTER_VERIFICATION - 1;
  if (spare && pick !== largest && triesOf(choice, largest) < TRIES && mayBeNoisy(history, choice.max)) {
    return {
      measure: largest,
      why: 'the largest of the good sizes ran slower: once more, since the machine may have been busy',
    };
  }
  if (spare && best > 0 && pick !== largest) {
    const between = interior(choice, measured).find((size) => size > pick && size < largest);
    if (between !== undefined) return { measure: between, why: 'the largest sizes run slower: where does that begin?' };
  }
  if (!history.isVerified(pick) && !isCovered(choice, pick))
    return { measure: pick, why: 'the size to be recommended, in the process that took the largest' };
  const peak = highest(history, pick, lastingPeak);
  const wide = peak === null || peak <= choice.advisable;
  const tight = wide ? [] : [workspaceNote(choice, pick, limit) ?? tightNote(choice)];
  return { size: pick, notes: [...notesOn(choice, pick, good, best), ...tight] };
}

/**
 * A fresh process took a larger size, and this one fitted a process that had run others: where segments can grow nothing lies so in pieces that a fresh one
 * would take less than that.
 */
function isCovered({ history, model }: Choice, size: number): boolean {
  const { largestVerified, all } = history;
  if (largestVerified === null || largestVerified <= size || !model.grown || model.bent || model.elastic) return false;
  return !mayVary(size, all, model.budgetBytes) && history.fits(size).some((o) => history.isSure(o));
}

/**
 * What the recommended size may hold, bytes. Where weights alone leave less than the headroom no size can: half of what the
 * smallest leaves is left free then, since the smallest of all would be many times slower for little.
 */
export function limitOf({ history, model, choices, advisable }: Choice): number {
  const least = highest(history, choices.lo, lastingPeak);
  return least === null || least <= advisable ? advisable : (least + model.budgetBytes) / 2;
}

/** Probes since a fresh process took the largest size. */
function probesAfterVerification({ history, max }: Choice): number {
  const verified = history.all.findIndex((o) => o.micro_batch === max && history.isVerification(o));
  return verified < 0 ? 0 : history.all.length - verified - 1;
}

/** How often the speed of a size was measured where it counts: in the process that proves the answer. */
function triesOf({ history }: Choice, size: number): number {
  return history.fits(size).filter((o) => history.isVerification(o)).length;
}

/** Samples per second and device: the best that fresh processes showed, else what was measured last; null: no time. */
export function rateOf(history: RungHistory, size: number): number | null {
  const timed = history.fits(size).filter((o) => rate(o) > 0);
  const verified = timed.filter((o) => history.isVerification(o));
  const rates = (verified.length > 0 ? verified : timed.slice(-1)).map(rate);
  return rates.length > 0 ? Math.max(...rates) : null;
}

/** The same, or what the largest size showed where it is next to this one, which then is as fast: a few steps tell a speed to a few per cent. */
function speedNear({ history, max }: Choice, size: number): number | null {
  const own = rateOf(history, size);
  const isNear = max <= (1 + SAME) * size && retriesOf(history, max) === 0;
  return own === null || !isNear ? own : Math.max(own, rateOf(history, max) ?? 0);
}

export function rate(o: Observation): number {
  return o.step_s ? (o.micro_batch * o.accumulation) / o.step_s : 0;
}

/** By how much the speed of one size differed from try to try in fresh processes: 0 where it was measured once. */
function speedNoise({ history }: Choice, size: number | undefined): number {
  const rates =
    size === undefined
      ? []
      : history
          .fits(size)
          .filter((o) => history.isVerification(o))
          .map(rate);
  const timed = rates.filter((value) => value > 0);
  return timed.length < 2 ? 0 : Math.min(MOST_NOISE, 1 - Math.min(...timed) / Math.max(...timed));
}

/** Whether the machine may be busy: the largest size ran at clearly different speeds, or only once, which cannot tell. */
function mayBeNoisy(history: RungHistory, max: number): boolean {
  const rates = history.fits(max).map(rate);
  return rates.length < 2 || Math.min(...rates) < FAST * Math.max(...rates);
}

/** Highest peak seen at a size that fits, bytes; null if it could not be measured. */
export function peakOf(history: RungHistory, size: number): number | null {
  return highest(history, size, (o) => peakBytes(o.peaks));
}

function highest(history: RungHistory, size: number, value: (o: Observation) => number | null): number | null {
  const fits = history.fits(size);
  const verified = fits.filter((o) => o.fresh);
  const peaks = (verified.length > 0 ? verified : fits).map(value).filter((bytes) => bytes !== null);
  return peaks.length > 0 ? Math.max(...peaks) : null;
}

export function retriesOf(history: RungHistory, size: number): number {
  const fits = history.fits(size);
  return (fits.findLast((o) => o.fresh) ?? fits.at(-1))?.alloc_retries ?? 0;
}

/**
 * Libraries that take what is left for workspace leave the headroom where what is needed does. Unmeasured peaks cannot be compared, and
 * where that is not known, those libraries' tell nothing: then the size itself has to stay below the largest by the headroom.
 */
export function leavesRoom(history: RungHistory, size: number, limit: number, choice: Choice): boolean {
  const { max, model, headroomPct } = choice;
  const peak = highest(history, size, lastingPeak);
  if (peak !== null && needsNoMore(model, size, limit)) return true;
  if (peak !== null) return peak <= limit;
  return size <= max * (1 - headroomPct / 100) || headroomPct === 0;
}

/** The largest choice that should leave the headroom, by interpolation; null if trying on is no use. */
export function largestWithHeadroom(
  choice: Choice,
  limit: number,
  measured: number[],
  good: number[],
  spent = 0,
): number | null {
  const { history, model, choices, max, headroomPct } = choice;
  const spoilt = measured.filter((size) => !good.includes(size) && size < max);
  const slow = spoilt.filter((size) => retriesOf(history, size) > 0).map((size) => 0.97 * size);
  const bad = history.failingBelow(max);
  // Fits are not monotone here: one more try well below, then only sizes that have fitted.
  if (bad.length > 1) return null;
  const byNeed = withinNeed(model, NEAR_LINE * limit);
  // Once: what gives back its cache 3 per cent below that is likely to do so a little further down, too.
  if (byNeed !== null && spent === 0) return choices.down(Math.min(byNeed, max, ...slow));
  // A size that was measured to leave too little is not predicted again.
  const tight = measured
    .filter((size) => !good.includes(size) && size > (good.at(-1) ?? 0))
    .map((size) => (spent > 1 ? WELL_BELOW * size : size - 1));
  const line = model.grown ? NEAR_LINE : BELOW_LINE;
  const byLine = model.grown || spent > 0 || !choice.cheap ? (model.largestWithin(line * limit) ?? max) : max;
  const excluded = Math.min(max, byLine, ...slow, ...tight, ...bad.map((size) => 0.9 * size));
  if (model.points.length === 0) return choices.down(excluded * (headroomPct === 0 ? 1 : 1 - headroomPct / 100));
  let size = choices.down(excluded);
  let low = choices.lo;
  if (size === null || (model.peakAt(low) ?? 0) > limit) return null;
  while (size !== null && low < size) {
    const middle = choices.up((low + size + 1) / 2) ?? size;
    const probe: number = Math.min(middle, size);
    if ((model.peakAt(probe) ?? 0) <= (model.grown ? NEAR_LINE : 1) * limit) low = probe;
    else size = choices.down(probe - 1);
  }
  return low;
}

function interior({ history, choices, max }: Choice, measured: number[]): number[] {
  return INTERIOR.map((part) => choices.down(part * max)).filter(
    (size): size is number =>
      size !== null &&
      [...measured, ...history.failingBelow(max)].every((other) => Math.abs(other - size) > SAME * size),
  );
}

/** No measured choice leaves the headroom: the smallest choice that a fresh process took, or that has to be tried. */
function lastResort({ history, choices, max, headroomPct }: Choice, measured: number[]): Recommendation {
  const smallest = choices.lo;
  if (smallest <= max && history.fits(smallest).length === 0 && !history.failingBelow(max).includes(smallest)) {
    return { measure: smallest, why: 'the smallest size that the answer may have' };
  }
  const size = measured.find((m) => history.isVerified(m)) ?? choices.down(max) ?? max;
  if (!history.isVerified(size)) return { measure: size, why: 'the only size that the answer may have' };
  return { size, notes: [tightNote({ headroomPct })] };
}

export function tightNote({ headroomPct }: Pick<Choice, 'headroomPct'>): string {
  return `No size leaves the headroom (weights and the optimizer fill the budget), so less than ${headroomPct} % of it is left free.`;
}

/** Null: the peak of the size is no library's workspace. */
function workspaceNote({ model, headroomPct }: Choice, size: number, limit: number): string | null {
  if (!needsNoMore(model, size, limit)) return null;
  return `cuDNN takes what memory is left as workspace and does with less: what the size needs leaves ${headroomPct} % of the budget, and less than ${headroomPct} % of the budget shows as free.`;
}

/** Whether a size takes no more than `limit`, but for workspace that libraries do without. */
function needsNoMore(model: MemoryModel, size: number, limit: number): boolean {
  return size <= (withinNeed(model, limit) ?? 0);
}

/** The largest size that does; null: the need is not known, or is all that is taken. */
function withinNeed(model: MemoryModel, limit: number): number | null {
  return model.flexible ? model.likelyWithin(limit) : null;
}

function notesOn({ max }: Choice, pick: number, good: number[], best: number): string[] {
  if (best > 0 && good.at(-1) !== pick) {
    return [`Micro-batch ${pick} is recommended because the sizes between it and ${max} run slower.`];
  }
  return [];
}
