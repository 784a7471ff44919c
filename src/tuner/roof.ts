import type { Sight } from './sight.js';

/** Part of the upper bound that a caching allocator can make use of at most: the rest goes into rounding. */
const USABLE = 0.993;
/** From this part of the upper bound on its line is drawn from near by. */
const DRAWN = 0.7;

/**
 * The smallest size that cannot fit: the one that failed, or the one that the peaks leave no room for. A peak is the highest of
 * many moments of a step, each with a line of its own, so it rises at least as fast from here on as it did up to here. Endless: not known.
 */
export function roofOf({ trail, model, sizes }: Sight): number {
  const { ceiling, top } = trail;
  const seen = Math.min(
    ceiling ?? Number.POSITIVE_INFINITY,
    sizes.hi === null ? Number.POSITIVE_INFINITY : sizes.hi + 1,
  );
  const last = model.readings.at(-1);
  if (!last?.phased || model.upper === null || top === null || model.readings.length < 3) return seen;
  if (top < DRAWN * model.upper) return seen;
  return Math.min(seen, Math.max(top + 1, Math.floor((model.caching ? USABLE : 1) * model.upper) + 1));
}
