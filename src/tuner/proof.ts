import { lifeOf } from '../contract/measurement.js';
import { roofOf } from './roof.js';
import type { Sight, Step } from './sight.js';
import { closed, nearEnoughTo, SMALL } from './sizes.js';

/** Below this a sample more or less decides. */
const TINY = 20;
/**
 * What a fresh process is asked to prove lies this much below the largest size that fitted in one that had run others, which
 * may have taken up to 0.6 per cent more than a fresh one does (bench/results/search-gpu.md): a second launch that dies costs
 * more than the last per cent is worth.
 */
const MARGIN = 0.01;
/** And no further below the first size that failed than this: within the search's tolerance. */
const NEAR_FAILURE = 0.018;

/** The probe that decides: the largest size that fits as far as is known, as the first thing that a process runs. */
export function proof(sight: Sight): Step {
  const why = 'the largest size has to fit a fresh process too';
  return { size: sizeToProve(sight), purpose: 'verify', fresh: true, why };
}

function sizeToProve(sight: Sight): number {
  const { trail, model, sizes } = sight;
  const top = trail.top as number;
  const ceiling = roofOf(sight);
  if (!Number.isFinite(ceiling) || top === sizes.hi) return top;
  if (!model.caching) {
    // What failed did so in a process that held a little more than a fresh one does: sizes between may well fit.
    const room = model.budgetBytes - model.stir;
    const within = Math.min(model.largestWithin(room) ?? top, model.steepestWithin(room) ?? top);
    const size = trail.diedFresh ? null : sizes.down(Math.min(ceiling - 1, Math.floor(within)));
    if (size === null || size <= (trail.firmTop ?? 0)) return top;
    return size > top || (top >= SMALL && closed(size, ceiling, sizes)) ? size : top;
  }
  if (top < TINY) return top;
  const crowded = trail.isPressed(top) || top + 2 > (model.upper ?? Number.POSITIVE_INFINITY);
  const roomy = Math.max(Math.ceil((1 - MARGIN) * top), Math.ceil((1 - NEAR_FAILURE) * (ceiling - 1)));
  const size = sizes.down(Math.min(top, top < SMALL ? top - (crowded ? 1 : 0) : roomy));
  return size !== null && size > (trail.firmTop ?? 0) && closed(size, ceiling, sizes) ? size : top;
}

/**
 * A fresh process was full to the brim at what was to be the largest: a size that is near enough to it, and leaves its allocator
 * room, is proved in that same process, which took more. Null: no such process is alive.
 */
export function belowBrim({ trail, sizes }: Sight, alive: boolean): Step | null {
  const { brim } = trail;
  const last = trail.all.at(-1);
  if (!alive || brim === null || last?.micro_batch !== brim) return null;
  const size = sizes.down(brim <= TINY ? brim - 1 : nearEnoughTo(brim));
  if (size === null || size <= (trail.firmTop ?? 0) || size > (trail.provedBy(lifeOf(last)) ?? 0)) return null;
  return { size, purpose: 'verify', why: `${brim} fills the budget to the brim: near enough below it there is room` };
}

/**
 * Sizes fitted in a process that had run others, but not in a fresh one: from here on only fresh processes are believed,
 * at sizes that step down ever faster and then close in. Null: nothing was refuted, or no size is left in between.
 */
export function retreat({ trail, sizes }: Sight): Step | null {
  const { ceiling, refuted } = trail;
  if (refuted === 0 || ceiling === null) return null;
  const firm = trail.firmTop ?? 0;
  const lower = ceiling - (ceiling - nearEnoughTo(ceiling)) * 2 ** (refuted - 1);
  const aim = sizes.down(lower > firm ? lower : (firm + ceiling) / 2);
  const size = aim !== null && aim > firm ? aim : sizes.up(firm + 1);
  if (size === null || size >= ceiling) return null;
  return {
    size,
    purpose: 'verify',
    fresh: true,
    why: `${ceiling} fits after other sizes only, so each is tried afresh`,
  };
}
