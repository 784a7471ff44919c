import { lifeOf } from '../contract/measurement.js';
import { smallestExcluded } from './excluded.js';
import type { NextSize, SearchState } from './search-state.js';
import { closingSize, isCloseEnough, nearEnoughTo, SMALL } from './sizes.js';

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
/**
 * So much below a size that fills the budget there is room: near enough to it also where that lasts all the same, and a little more does (minGPT
 * and ResNet-18 on an H100: 0.3 per cent).
 */
const BRIM = 0.012;
/** The same where what lay in pieces tells how much room there has to be. */
const BRIM_BY_PIECES = 0.008;

/** The probe that decides: the largest size that fits as far as is known, as the first thing that a process runs. */
export function verification(state: SearchState): NextSize {
  const why = 'the largest size has to fit a fresh process too';
  return { size: sizeToVerify(state), purpose: 'verify', fresh: true, why };
}

function sizeToVerify(state: SearchState): number {
  const { history, model, sizes } = state;
  const top = history.top as number;
  const ceiling = smallestExcluded(state);
  if (!Number.isFinite(ceiling) || top === sizes.hi) return top;
  if (!model.caching) {
    // What failed did so in a process that held a little more than a fresh one does: sizes between may well fit.
    const room = model.budgetBytes - model.processNoise;
    const within = Math.min(model.largestWithin(room) ?? top, model.steepestWithin(room) ?? top);
    const size = history.hasFailedFresh ? null : sizes.down(Math.min(ceiling - 1, Math.floor(within)));
    if (size === null || size <= (history.largestVerified ?? 0)) return top;
    return size > top || (top >= SMALL && isCloseEnough(size, ceiling, sizes)) ? size : top;
  }
  if (top < TINY) return top;
  const crowded = history.hasRetries(top) || top + 2 > (model.upper ?? Number.POSITIVE_INFINITY);
  const roomy = Math.max(Math.ceil((1 - MARGIN) * top), Math.ceil((1 - NEAR_FAILURE) * (ceiling - 1)));
  const size = sizes.down(Math.min(top, top < SMALL ? top - (crowded ? 1 : 0) : roomy));
  return size !== null && size > (history.largestVerified ?? 0) && isCloseEnough(size, ceiling, sizes) ? size : top;
}

/**
 * A fresh process was full to the brim at what was to be the largest: a size that is near enough to it, and leaves its allocator
 * room, is proved in that same process, which took more. Null: no such process is alive.
 */
export function belowFilledBudget({ history, model, sizes }: SearchState, alive: boolean): NextSize | null {
  const { filledBudgetAt } = history;
  const last = history.all.at(-1);
  if (!alive || filledBudgetAt === null || last?.micro_batch !== filledBudgetAt) return null;
  const isSeen = Number.isFinite(model.lasting);
  const brim = isSeen ? BRIM_BY_PIECES : BRIM;
  const near = filledBudgetAt < SMALL ? nearEnoughTo(filledBudgetAt) : Math.floor((1 - brim) * filledBudgetAt);
  const size = sizes.down(Math.min(isSeen ? model.lasting : near, filledBudgetAt <= TINY ? filledBudgetAt - 1 : near));
  const isNear = filledBudgetAt <= closingSize(history.largestVerified ?? 0);
  if (
    size === null ||
    isNear ||
    size <= (history.largestVerified ?? 0) ||
    size > (history.firstSizeOf(lifeOf(last)) ?? 0)
  )
    return null;
  return {
    size,
    purpose: 'verify',
    why: `${filledBudgetAt} fills the budget to the brim: near enough below it there is room`,
  };
}
