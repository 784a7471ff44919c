import type { Probe } from '../contract/measurement.js';
import { hasRisen, type MemoryModel } from './model.js';
import { closingSize, nearEnoughTo, type Sizes, SMALL } from './sizes.js';
import type { Trail } from './trail.js';

/** What the choice of the next size on a rung looks at. */
export interface Sight {
  trail: Trail;
  model: MemoryModel;
  sizes: Sizes;
  /** Each probe is a launch of its own: no size may be wasted, and every one is proof by itself. */
  perLaunch: boolean;
}

export interface Step {
  size: number;
  purpose: Probe['purpose'];
  /** Only a fresh process would be believed. */
  fresh?: boolean;
  why: string;
}

/** As many sizes within 3 per cent of each other as are enough to stop believing the prediction to the sample. */
const CREPT = 6;
/** However little a sample seems to cost, a kink may come: at small sizes no stride is longer than this. */
const STRIDE = 32;
/** Where the peak rises faster and faster (with the square of the size, say), its line reaches no further than this. */
const BENT_STRIDE = 3;
/** From this part of the predicted limit on, the limit is predicted from near by. */
const NEAR = 0.985;
/** Where the peaks' line meets the budget less than this is sure to fit. */
const SURE = 0.992;
/**
 * A caching allocator's peak bends below the limit as fragments add up, and any peak may where another moment of the step
 * becomes the highest: it is looked at here, and then in short strides if it has bent already.
 */
const BEND = 0.87;
const AFTER_BEND = 1.07;
/** Where it had to give its cache back already, it may fail at any size. */
const UNDER_PRESSURE = 1.03;
/** Below this a sample is more than any of these parts. */
const TINY = 8;

/**
 * The next size to try between the largest that fits (there is one) and the smallest that does not, each predicted to
 * fit as long as anything can be predicted. Null: there is no size in between.
 */
export function nextSize(sight: Sight): Step | null {
  const { trail, sizes } = sight;
  const top = trail.top as number;
  const roof = trail.ceiling ?? (sizes.hi === null ? Number.POSITIVE_INFINITY : sizes.hi + 1);
  const step = stepFrom(sight, top, roof);
  const size = sizes.down(Math.min(step.size, roof - 1, longest(sight, top)));
  if (size !== null && size > top) return { ...step, size };
  const up = sizes.up(top + 1);
  return up !== null && up < roof ? { ...step, size: up } : null;
}

/** The longest stride while nothing has failed: where the allocator is under pressure, predictions are worth little. */
function longest({ trail, model, perLaunch }: Sight, top: number): number {
  const pressed = trail.sizes.some((size) => size >= 0.7 * top && trail.isPressed(size));
  return model.caching && !perLaunch && pressed && trail.ceiling === null
    ? Math.max(top + 1, UNDER_PRESSURE * top)
    : Number.POSITIVE_INFINITY;
}

function stepFrom(sight: Sight, top: number, roof: number): Step {
  const { trail, model } = sight;
  if (trail.ceiling === null) return climb(sight, top, roof);
  // A failure far up (of the script's own batch, say) tells less than a few measured sizes do.
  const far = 4 * top < trail.ceiling && model.readings.length > 0;
  const step = far ? climb(sight, top, roof) : null;
  return step && step.size < trail.ceiling ? step : narrow(sight, top, trail.ceiling);
}

/** Nothing near has failed yet: rise in strides towards the predicted limit, then one size beyond it. */
function climb(sight: Sight, top: number, roof: number): Step {
  const { trail, model, perLaunch } = sight;
  if (model.readings.length === 0)
    return { size: 2 * top, purpose: 'climb', why: 'nothing is measured here, so the size doubles' };
  if (model.lower === null || model.cautious === null) return secondSize(sight, top);
  const hi = roof - 1;
  const limit = Math.min(model.lower, hi);
  // However little the figures promise, a stride is a stride: from sample to sample a climb would not end.
  const cautious = Math.max(top + 1, 1.03 * top, 0.9 * model.cautious);
  if (top < 0.15 * limit && !perLaunch) {
    const quarter = Math.min(limit / 4, cautious, STRIDE * top);
    return model.bent && BENT_STRIDE * top < quarter
      ? {
          size: BENT_STRIDE * top,
          purpose: 'climb',
          why: 'the peak bends here, so the stride is short',
        }
      : { size: quarter, purpose: 'climb', why: `about a quarter of the predicted limit, ${say(limit)}` };
  }
  if (top < 0.4 * limit) {
    return {
      size: Math.min(limit / 2, cautious),
      purpose: 'climb',
      why: `about half of the predicted limit, ${say(limit)}`,
    };
  }
  const bends = (model.caching || model.bent) && !perLaunch;
  if (!perLaunch && top < 0.8 * limit && limit >= (bends ? TINY : SMALL)) {
    return {
      size: Math.min(BEND * limit, cautious),
      purpose: 'climb',
      why: `most of the way to the predicted limit, ${say(limit)}: up here the peak may be no straight line`,
    };
  }
  if (model.lower > 1.1 * hi)
    return { size: hi, purpose: 'climb', why: 'the largest size that is allowed is predicted to fit' };
  const near = Math.floor(limit >= SMALL ? NEAR * limit : limit - 1);
  if (top < near && !perLaunch) {
    const size = bends ? Math.min(near, Math.max(top + 1, AFTER_BEND * top)) : near;
    return { size, purpose: 'climb', why: `towards the predicted limit, ${say(limit)}` };
  }
  // A prediction that moves on by a sample with each size that it was right about would be followed for ever.
  const crept = trail.sizes.filter((size) => size >= 0.97 * top).length >= CREPT;
  if (top < (perLaunch ? near : Math.floor(limit)) && !crept) {
    return { size: limit, purpose: 'climb', why: 'the largest size that is predicted to fit' };
  }
  return beyond(sight, top);
}

/** One size is known: the next is chosen so that even a line through the origin stays within the budget. */
export function secondSize({ model, perLaunch }: Sight, top: number): Step {
  const last = model.readings.at(-1);
  const stride = perLaunch ? 8 : 4;
  let bound = Number.POSITIVE_INFINITY;
  if (last) {
    const base = last.resident ?? 0;
    const perSample = Math.max(last.active - base, 1) / last.microBatch;
    const byRay = last.microBatch + (0.9 * model.budgetBytes - last.total) / perSample;
    // A peak that does not move is the optimizer's: it hides how little a sample costs, and doubling is safe enough.
    const hidden = model.readings.length > 1 && !hasRisen(model.readings) ? (stride / 2) * top : 0;
    bound = Math.max(hidden, byRay, (0.9 * model.budgetBytes * last.microBatch) / last.total);
  }
  return { size: Math.min(stride * top, bound), purpose: 'climb', why: 'a second point tells what a sample costs' };
}

/** The predicted limit fits: look for the first size that does not. */
function beyond({ trail, model, perLaunch }: Sight, top: number): Step {
  const upper = model.upper ?? top;
  if (!model.caching) {
    if (perLaunch && top >= 50)
      return { size: closingSize(top), purpose: 'bound', why: 'to see a size fail within 2 % of the largest' };
    // The prediction was too low once already for each size that fitted up here: longer steps, up to one per cent.
    const surprises = Math.max(0, trail.sizes.filter((size) => size >= 0.97 * top).length - 2);
    const step = Math.max(1, Math.min(2 ** surprises, Math.floor(0.01 * top)));
    return {
      size: top + step,
      purpose: 'bound',
      why: 'the successor of the largest is expected not to fit; this proves it',
    };
  }
  if (perLaunch) {
    const size = Math.max(closingSize(top), Math.floor((top + upper) / 2));
    return { size, purpose: 'bound', why: `halfway to the upper bound, ${say(upper)}` };
  }
  const most = (trail.isPressed(top) ? 0.01 : 0.02) * top;
  return {
    size: top + Math.max(1, Math.min(most, Math.max(0.007 * top, (upper - top) / 3))),
    purpose: 'bound',
    why: `a small step towards the upper bound, ${say(upper)}, that the allocated bytes give`,
  };
}

/** A size has failed: narrow the gap between it and the largest that fits. */
function narrow(sight: Sight, top: number, ceiling: number): Step {
  const { trail, model, sizes, perLaunch } = sight;
  const gap = ceiling - top;
  if (trail.smallestBad === null && model.lower !== null && model.lower >= ceiling) {
    // The bound is an earlier run's, who met more than a few steps: near enough below it is all there is to know.
    return { size: Math.ceil(0.98 * (ceiling - 1)), purpose: 'climb', why: `an earlier run could not take ${ceiling}` };
  }
  // The prediction failed where nothing else could be the reason: no line can be trusted up here.
  if (!model.caching && !perLaunch && trail.diedFresh) {
    return { size: top + gap / 3, purpose: 'bound', why: `a fresh process could not take ${ceiling}: well below it` };
  }
  const chord = model.caching ? null : alongRefusal(sight, top, ceiling);
  if (model.readings.length === 0 || model.lower === null || (model.lower >= ceiling && chord === null)) {
    return {
      size: top + gap / 2,
      purpose: 'bound',
      why: `halfway between ${top}, which fits, and ${ceiling}, which does not`,
    };
  }
  const meets = Math.min(model.lower, chord ?? Number.POSITIVE_INFINITY);
  const margin = Math.max(1, gap / 8);
  // Near the failure a first size that is near enough to it need not be followed by another.
  const enough = Math.max(NEAR * meets, Math.min(nearEnoughTo(ceiling), SURE * meets));
  const aim = perLaunch || meets < NEAR * ceiling ? meets : enough;
  const size = Math.min(Math.max(aim, top + margin), Math.max(ceiling - margin, sizes.up(top + 1) ?? 0));
  return { size, purpose: 'bound', why: `the line through the last peaks meets the budget at ${say(meets)}` };
}

/** Where the line from the largest that fits to what the failed size needed at least meets the budget; null: unknown. */
function alongRefusal({ trail, model }: Sight, top: number, ceiling: number): number | null {
  const failure = trail.all.findLast((o) => o.micro_batch === ceiling && o.outcome !== 'fit');
  const here = model.peakAt(top);
  const { total_bytes: held } = failure?.peaks ?? { total_bytes: null };
  if (here === null || held === null || !failure?.refused_bytes) return null;
  const needed = held + failure.refused_bytes;
  return needed > model.budgetBytes ? top + ((model.budgetBytes - here) * (ceiling - top)) / (needed - here) : null;
}

function say(size: number): string {
  return Number.isFinite(size) ? `about ${Math.floor(size)}` : 'not in sight';
}
