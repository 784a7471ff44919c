import { formatBytes } from '../common/size.js';
import type { Observation } from '../contract/measurement.js';
import { leaks, outgrows, stepsToFull } from './peaks.js';
import type { Action, Constraints } from './types.js';

/**
 * The end of a search on a loop that leaves memory behind with every step: no size could be recommended that its training
 * would not outgrow. A job that is to keep its own batch runs where that lasts for a while. Null: nothing of the kind.
 */
export function growthAction(
  observations: readonly Observation[],
  { goal, budgetBytes }: Pick<Constraints, 'goal' | 'budgetBytes'>,
): Action | null {
  const seen = observations.find((o) => leaks(o, budgetBytes) && (goal === 'search' || outgrows(o, budgetBytes)));
  if (!seen) return null;
  return {
    type: 'exhausted',
    cause: 'growth',
    why: growthTold(seen, budgetBytes),
    evidence: `${growthTold(seen, budgetBytes)}.`,
  };
}

/** `Memory grows by 1.2 MiB with every step …`: one sentence. */
export function growthTold(o: Observation, budgetBytes: number): string {
  const keeper = o.kept_by ? `, kept by ${o.kept_by}` : '';
  const steps = stepsToFull(o, budgetBytes);
  return `Memory grows by ${formatBytes(o.growth_bytes_per_step ?? 0)} with every step${keeper}: at micro-batch ${o.micro_batch} the budget is full after about ${steps} steps, and no batch size helps for long, unless the script empties that before (after each pass, say)`;
}
