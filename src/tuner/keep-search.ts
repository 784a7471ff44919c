import { hasRisen, slopeOf } from './curve-point.js';
import { steepest } from './line.js';
import type { MemoryModel } from './model.js';
import { lastingPeak } from './peaks.js';
import { isLongEnough } from './probe-length.js';
import { type Choice, largestWithHeadroom, leavesRoom, limitOf, retriesOf, tightNote } from './recommend.js';
import type { RungHistory } from './rung-history.js';
import { floorDecision, GRADIENTS, type RungDecision, type RungSearch, stateOf } from './search.js';
import { secondSize } from './second-size.js';

/**
 * Bytes, as a part of the budget, that a size has to leave free in a process that has run others to be believed without a fresh
 * one: such a process takes up to 0.6 per cent more (bench/results/search-gpu.md).
 */
const BELIEVED_FREE = 0.01;
/** Part of the budget above which a caching allocator is given steps to come to rest in. */
const CREEPS = 0.85;
/** A stride is at most this many times the largest size that fits. */
const STRIDE = 16;
/** Where a prediction has failed and ended the process, another launch is made for a size this many times as large, not for less. */
const WORTH_A_LAUNCH = 1.5;
/**
 * How much worse than predicted a size may be that more than one measured step is skipped for: the peak rises so many times as steeply, and by
 * that part of the budget at once. Where it runs out of memory all the same, its process ends, and the sizes between would take another.
 */
const WORSE = { steeper: 4, jump: 0.3 };
/** So many times the peak of the first size is that of the second at least, where the line through both is believed to end near by. */
const BARELY = 1.02;
/** Two sizes with fewer samples between them are no line yet, where the effective batch has at least so many micro-batches of the larger. */
const [FEW, MANY] = [4, 256];
/** The last peak is less than so many times the first: it is what is there at any size. */
const FLAT = 1.001;
/** Part of the first slope that the last one is below where they fall. */
const SLOWER = 0.95;
/** Part of what lies between headroom and budget up to which a size is measured, to see whether it leaves the headroom after all. */
const BENEFIT = { caching: 0.5, counted: 0.125 };

/**
 * The next step on a rung for a job that is to keep its effective batch and does not fit as it stands: the largest micro-batch that
 * leaves the headroom, from one process, by sizes that are all predicted to fit. What is free then is more than a
 * process differs from a fresh one by, and the run itself begins afresh: no other launch has to prove it. Null: one process cannot be
 * asked for many sizes, or nothing is measured in it.
 */
export function keepDecision(search: RungSearch): RungDecision | null {
  if (!search.driven || search.perLaunch) return null;
  const floor = floorDecision(search);
  if (floor) return floor;
  const view = viewOf(search);
  if (view.choice.model.points.length === 0) return null;
  const { best } = view;
  const longer = best === null ? null : trusted(view, best, search);
  const next = nextToKeep(search, view);
  if (next !== null && (search.alive || next >= WORTH_A_LAUNCH * (best ?? 0))) {
    // While its process is alive: if the next size killed it, measuring this one would take another launch.
    if (longer !== null && !longer.fresh && search.alive) return longer;
    const { model, choices } = view.choice;
    const last = model.lower !== null && next >= (farthest(view, search) ?? 0) && choices.down(next) === next;
    const why = last
      ? 'the largest part of the effective batch that is predicted to leave the headroom'
      : 'on the way to the largest part of the effective batch that fits';
    const decides = last || (model.peakAt(next) ?? 0) > CREEPS * search.budgetBytes;
    return { kind: 'probe', size: next, purpose: decides ? 'verify' : 'climb', fresh: false, why };
  }
  if (best === null) return null;
  if (longer !== null) return longer;
  return { kind: 'found', size: best, max: best, notes: tightness(view, best) };
}

/** What has to be seen of a size before it is believed; null: nothing. */
function trusted(view: View, size: number, search: RungSearch): (RungDecision & { kind: 'probe' }) | null {
  if (isBelieved(view, size, search)) return null;
  const roomy = isRoomy(view, size);
  const why = roomy ? 'the size to run with, for as long as it takes to trust it' : 'so full a size is proved afresh';
  return { kind: 'probe', size, purpose: 'verify', fresh: !roomy, why };
}

/** The best of what was measured, when there is no launch left to prove more; null: nothing leaves enough free. */
export function bestToKeep(search: RungSearch): { size: number; max: number } | null {
  if (!search.driven || search.history.top === null) return null;
  const view = viewOf(search);
  return view.best !== null && isRoomy(view, view.best) ? { size: view.best, max: view.best } : null;
}

interface View {
  choice: Choice;
  /** Bytes that the size may hold. */
  limit: number;
  /** Largest measured size that leaves the headroom and does not make the allocator retry; null: none does. */
  best: number | null;
  good: number[];
}

function viewOf(search: RungSearch): View {
  const { history, sizes, headroomPct, advisable, alive: cheap } = search;
  const { model } = stateOf(search);
  const choice = { history, model, choices: sizes, max: history.top as number, headroomPct, advisable, cheap };
  const limit = limitOf(choice);
  const good = history.sizes.filter(
    (size) => sizes.down(size) === size && leavesRoom(history, size, limit, choice) && retriesOf(history, size) === 0,
  );
  return { choice, limit, good, best: good.at(-1) ?? null };
}

/** The largest size that is predicted to leave the headroom, or nearly; null: none above the largest that fits. */
function farthest({ choice, limit }: View, { plan, alive }: RungSearch): number | null {
  const { history, model, choices } = choice;
  const top = history.top as number;
  const part = model.caching ? BENEFIT.caching : BENEFIT.counted;
  const most = limit + part * (model.budgetBytes - limit);
  const excluded = history.ceiling ?? Number.POSITIVE_INFINITY;
  // The whole effective batch at once accumulates no gradients.
  const whole = plan.perDevice;
  const waiting = GRADIENTS * (model.points.at(-1)?.resident ?? 0);
  if (whole !== null && whole > top && whole < excluded && choices.down(whole) === whole) {
    const peak = model.lower === null ? null : model.peakAt(whole);
    if (peak !== null && peak - waiting <= most) return whole;
  }
  const within = model.largestWithin(most);
  const size = within === null ? null : choices.down(Math.min(within, excluded - 1));
  if (size !== null && size > top) return size;
  // A caching allocator keeps less of what it does not use as its limit comes near: the allocated bytes may promise one more.
  const up = choices.up(top + 1);
  const upper = model.caching && alive && model.upper !== null ? (model.upper * limit) / model.budgetBytes : 0;
  return up !== null && up < excluded && up <= upper ? up : null;
}

function nextToKeep(search: RungSearch, view: View): number | null {
  const { history, model, choices } = view.choice;
  const top = history.top as number;
  const excluded = history.ceiling ?? Number.POSITIVE_INFINITY;
  const up = choices.up(top + 1);
  if (up !== null && up < excluded) {
    const most = Math.min(excluded - 1, Math.max(WORTH_A_LAUNCH * top, unsurprising(model)));
    if (model.lower === null) {
      return Math.max(up, choices.down(Math.min(secondSize(stateOf(search), top).size, most)) ?? up);
    }
    const aim = farthest(view, search);
    if (aim !== null) {
      // A size in between shows whether the peak is a line.
      const halfway = top < aim / (model.caching || model.bent ? 2 : 8) ? aim / 2 : aim;
      return Math.max(up, choices.down(Math.min(halfway, STRIDE * top, most)) ?? up);
    }
  }
  if (up !== null && up < excluded && search.alive) {
    if (mayFit(model, up, view.limit, search) || isNoLine(model, up) || isFlattening(model)) return up;
    if (top + 1 < up && hasFewSamples(model, search) && (model.peakAt(top + 1) ?? 0) <= view.limit) return top + 1;
  }
  const wanted = largestWithHeadroom(view.choice, view.limit, history.sizes, view.good);
  return wanted !== null && wanted > (view.best ?? 0) && history.fits(wanted).length === 0 ? wanted : null;
}

/** The largest size that fits also if the peak does much worse from the last measured size on than it did up to it. */
function unsurprising({ points, bytesPerSample, budgetBytes }: MemoryModel): number {
  const last = points.at(-1);
  if (!last) return 0;
  const room = (1 - WORSE.jump) * budgetBytes;
  // No peak rises faster than in proportion to the size.
  const ray = (last.microBatch * room) / last.total;
  // Two points, or those on the optimizer's floor, are no line yet.
  const seen = points.slice(-3);
  if (seen.length < 3 || !(last.phased || hasRisen(seen))) return ray;
  const slope = WORSE.steeper * Math.max(bytesPerSample ?? 0, steepest(seen.map((r) => [r.microBatch, r.active])));
  return Math.max(ray, slope > 0 ? last.microBatch + (room - last.total) / slope : 0);
}

/**
 * Whether the next size leaves the headroom if the last rise was a step and no slope (a library's workspace, at the first size that wants it). Should it
 * not, its process ends, and the size before it is the answer: that costs no launch.
 */
function mayFit({ points, bent }: MemoryModel, size: number, limit: number, { plan }: RungSearch): boolean {
  const [first, middle, last] = points.slice(-3);
  if (!first || !middle || !last || !bent) return false;
  const slope = (middle.active - first.active) / (middle.microBatch - first.microBatch);
  // Two sizes that take the same tell of no slope; but hundreds of micro-batches train many times as slowly as a few.
  const rises = slope > 0 || (slope === 0 && (plan.perDevice ?? 0) >= MANY * last.microBatch);
  return rises && last.total + slope * (size - last.microBatch) <= limit;
}

/**
 * Two sizes alone, of which the second takes next to nothing more: what a second sample takes once (libraries' buffers) would foretell that hardly a third fits,
 * and thousands of pairs train many times as slowly. The next is measured if the line has it within the budget.
 */
function isNoLine(model: MemoryModel, size: number): boolean {
  const [first, last, more] = model.points;
  if (!first || !last || more || last.total >= BARELY * first.total) return false;
  return (model.peakAt(size) ?? Number.POSITIVE_INFINITY) <= model.budgetBytes;
}

/**
 * Two sizes alone that differ by a few samples, and hundreds of micro-batches of the larger, which train many times as slowly as a few: what a second sample
 * takes once would foretell that no more fits. One sample more, though no part of the effective batch, shows that, and fits if it is a line.
 */
function hasFewSamples({ points: [first, last, more] }: MemoryModel, { plan: { perDevice } }: RungSearch): boolean {
  if (!first || !last || more) return false;
  return last.microBatch - first.microBatch < FEW && (perDevice ?? 0) >= MANY * last.microBatch;
}

/**
 * The peak is what is there at any size (a loss over the whole batch), and what samples take below it rises more slowly than at first: a line through that would
 * meet the budget where nothing does. The next is measured; if it runs out of memory its process ends, which costs no launch.
 */
function isFlattening({ points }: MemoryModel): boolean {
  const [first, second] = points;
  const [middle, last] = points.slice(-2);
  if (!first || !second || !middle || !last || last.total >= FLAT * first.total) return false;
  return slopeOf(middle, last) < SLOWER * slopeOf(first, second);
}

/** Whether the size leaves so much free that a fresh process fits it too. */
function isRoomy({ choice: { history, model } }: View, size: number): boolean {
  return peakOf(history, size) <= model.budgetBytes * (1 - BELIEVED_FREE);
}

function isBelieved(view: View, size: number, { steps }: RungSearch): boolean {
  const { history, model } = view.choice;
  if (history.isVerified(size)) return true;
  const creeps = model.caching && peakOf(history, size) > CREEPS * model.budgetBytes;
  return isRoomy(view, size) && history.fits(size).some((o) => history.isSure(o) && isLongEnough(o, steps, creeps));
}

function tightness({ choice }: View, size: number): string[] {
  return peakOf(choice.history, size) <= choice.advisable ? [] : [tightNote(choice)];
}

/** The highest peak seen at a size, bytes; infinite if none was measured. */
function peakOf(history: RungHistory, size: number): number {
  return Math.max(...history.fits(size).map((o) => lastingPeak(o) ?? Number.POSITIVE_INFINITY));
}
