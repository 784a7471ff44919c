import type { Observation } from '../contract/measurement.js';
import { type Rung, sameRung } from '../contract/rung.js';
import { nearEnoughTo } from './sizes.js';
import type { Constraints } from './types.js';

/**
 * Segments of a caching allocator that can grow lose next to nothing to fragments, and cost nothing: they are turned on
 * before any smaller size is settled for. From then on only what ran with them proves anything, and a failure
 * without them says nothing of a size that ran with them.
 */

/** Part of the budget in pieces from which on a search may gain by it: less is within what it is off by anyway. */
const NOTABLE = 0.05;

/** Segments that can grow and at once fail within so much of what fits without them bring too little. */
const NO_GAIN = 1.3;

/** Whether the next probe on a rung runs with segments that can grow. */
export function growsOn(rung: Rung, observations: readonly Observation[], c: Constraints): boolean {
  if (!c.expandable) return false;
  const here = observations.filter((o) => sameRung(o.rung, rung));
  if (isWorse(here)) return false;
  return observations.some((o) => o.expandable_segments) || here.some((o) => isWorthIt(o, c) && !isSettled(o, here));
}

/** The observations as they count where segments can grow (`grows`), or cannot. */
export function countedAs(grows: boolean, observations: readonly Observation[]): readonly Observation[] {
  if (!grows) {
    const plain = observations.filter((o) => !o.expandable_segments);
    const most = Math.max(0, ...plain.filter((o) => o.outcome === 'fit').map((o) => o.micro_batch));
    return observations.filter((o) => !o.expandable_segments || (o.outcome === 'device_oom' && o.micro_batch > most));
  }
  const most = Math.max(
    0,
    ...observations.filter((o) => o.expandable_segments && o.outcome === 'fit').map((o) => o.micro_batch),
  );
  return observations.flatMap((o) => {
    if (o.expandable_segments) return [o];
    return o.outcome === 'device_oom' && o.micro_batch <= most ? [] : [{ ...o, fresh: false }];
  });
}

/**
 * The smallest size of a rung's observations that has failed without such segments alone, and may fit with them; null: none.
 * `certain`: the request that was refused would have found room among the pieces.
 */
export function failedInPieces(
  rung: Rung,
  observations: readonly Observation[],
): { size: number; certain: boolean } | null {
  const here = observations.filter((o) => sameRung(o.rung, rung));
  const tried = here.filter((o) => o.expandable_segments).map((o) => o.micro_batch);
  const failures = here.filter((o) => isFailure(o) && !o.expandable_segments && canHelp(o) !== false);
  const smallest = failures.toSorted((a, b) => a.micro_batch - b.micro_batch)[0];
  if (smallest === undefined || tried.some((size) => size >= smallest.micro_batch)) return null;
  const failed = here.filter((o) => isFailure(o) && o.expandable_segments);
  if (failed.some((o) => o.micro_batch <= smallest.micro_batch)) return null;
  return { size: smallest.micro_batch, certain: canHelp(smallest) === true };
}

/** A size that fitted without them ran out of memory with them. */
function isWorse(here: readonly Observation[]): boolean {
  const fits = here.filter((o) => o.outcome === 'fit');
  const most = Math.max(0, ...fits.filter((o) => !o.expandable_segments).map((o) => o.micro_batch));
  const grown = here.filter((o) => o.expandable_segments);
  return grown.some(
    (o, at) =>
      isFailure(o) &&
      o.micro_batch <= (at === 0 ? NO_GAIN : 1) * most &&
      !grown.some((fit) => fit.outcome === 'fit' && fit.micro_batch >= o.micro_batch),
  );
}

function isWorthIt(o: Observation, { goal, ownBatch, budgetBytes }: Constraints): boolean {
  if (!isFailure(o) || o.expandable_segments || canHelp(o) === false) return false;
  return (goal === 'keep' && o.micro_batch === ownBatch) || (o.unallocated_bytes ?? 0) >= NOTABLE * budgetBytes;
}

/** A fresh process took, without them, a size that is near enough to the one that failed. */
function isSettled(failed: Observation, here: readonly Observation[]): boolean {
  const near = nearEnoughTo(failed.micro_batch);
  return here.some((o) => o.outcome === 'fit' && o.fresh && !o.expandable_segments && o.micro_batch >= near);
}

const isFailure = (o: Observation): boolean => o.outcome === 'device_oom' && o.phase !== 'load';

/** Null: the figures are unknown. */
function canHelp({
  refused_bytes: refusedBytes,
  unallocated_bytes: unallocatedBytes,
  free_bytes: freeBytes,
}: Observation): boolean | null {
  if (!refusedBytes || unallocatedBytes === null || unallocatedBytes === undefined) return null;
  return refusedBytes <= unallocatedBytes + (freeBytes ?? 0);
}
