import { configOf } from '../contract/rung.js';
import type { EffectivePlan } from './accumulation.js';
import { growthTold } from './growth.js';
import { growthBytes, lastingPeak, leaks, mayGrow } from './peaks.js';
import { peakOf, rateOf } from './recommend.js';
import type { RungHistory } from './rung-history.js';
import type { RungSearch } from './search.js';
import { LASTING } from './step-peaks.js';
import type { Answer, Constraints } from './types.js';

/** The answer for a rung: `size` is recommended, `max` is what fits at all, in a fresh process. */
export function answerOf(
  c: Constraints,
  plan: EffectivePlan,
  { rung, history, turnsOn }: Pick<RungSearch, 'rung' | 'history' | 'turnsOn'>,
  { size, max, notes }: { size: number; max: number; notes: string[] },
): Answer {
  const accumulation = plan.accumulation(size);
  const config = configOf(
    { ...rung, expandable_segments: turnsOn },
    { micro_batch: size, accumulation, world_size: c.worldSize },
  );
  const peak = peakOf(history, size);
  const rate = rateOf(history, size);
  const steps = [size, max].flatMap((s) => {
    const fits = history.fits(s);
    const verified = fits.filter((o) => history.isVerification(o));
    return fits.length > 0 ? [Math.max(...(verified.length > 0 ? verified : fits).map((o) => o.steps))] : [];
  });
  const leak = history.fits(size).findLast((o) => leaks(o, c.budgetBytes));
  const rising = leak ? [] : history.fits(size).filter((o) => growthBytes(o) > 0 && mayGrow(o, c.budgetBytes));
  const withShapes = rising.some((o) => o.grows_with_shapes) ? ', with new shapes of its inputs' : '';
  const retries = history.fits(max).some((o) => o.fresh && o.alloc_retries > 0);
  return {
    config,
    max_micro_batch: max,
    peak_bytes: peak,
    headroom_pct: peak === null ? null : Math.round((1 - peak / c.budgetBytes) * 1000) / 10,
    samples_per_s: rate === null ? null : rate * c.worldSize,
    verified_steps: Math.min(...steps),
    known_bad_micro_batch: smallestFailingAbove(history, max),
    notes: [
      ...plan.notes(size, max),
      ...notes,
      ...(rung.amp === 'off' || rung.amp === c.rungs[0]?.amp
        ? []
        : [`${rung.amp} is turned on: this changes the numerics.`]),
      ...(rung.optimizer_8bit
        ? ["The optimizer's moments are held in 8 bits, as --allow lets them be: this changes the numerics."]
        : []),
      ...(rung.bf16_weights
        ? [
            "The weights, their gradients and the optimizer's state are held in bf16, as --allow lets them be: this changes the numerics.",
          ]
        : []),
      ...(leak ? [`${growthTold(leak, c.budgetBytes)}.`] : []),
      ...(rising.length > 0
        ? [`Memory grows from step to step${withShapes}: the sizes are such that it lasts for ${LASTING} steps.`]
        : []),
      ...(retries
        ? [`At micro-batch ${max} the allocator has to give back its cache and retry: it fits, but slowly.`]
        : []),
      ...(history.filledBudgetAt === null
        ? []
        : [
            `Micro-batch ${history.filledBudgetAt} ran too, but filled the budget to the brim, giving back its cache: that is no proof that it lasts.`,
          ]),
    ],
  };
}

/** Used when the search has to stop early: the best of what fresh processes took. Null: they took nothing. */
export function bestVerified(
  plan: EffectivePlan,
  { history, advisable }: Pick<RungSearch, 'history' | 'advisable'>,
): { size: number; max: number } | null {
  const max = history.largestVerified;
  const choices = max === null ? null : plan.choices(max);
  if (max === null || !choices) return null;
  const verified = history.sizes.filter((size) => history.isVerified(size) && choices.down(size) === size);
  const roomy = verified.filter((size) => {
    const fits = history.fits(size).filter((o) => history.isVerification(o));
    return fits.every((o) => o.alloc_retries === 0 && (lastingPeak(o) ?? 0) <= advisable);
  });
  const size = roomy.at(-1) ?? verified[0];
  return size === undefined ? null : { size, max };
}

function smallestFailingAbove(history: RungHistory, max: number): number | null {
  return history.smallestFailing !== null && history.smallestFailing > max ? history.smallestFailing : history.ceiling;
}
