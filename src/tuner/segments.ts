import { sameRung } from './ladder.js';
import type { Constraints, Observation, Rung } from './types.js';

/**
 * Segments of a caching allocator that can grow lose next to nothing to fragments, and cost nothing: they are turned on
 * before any smaller size is settled for. From then on only what ran with them proves anything, and a failure
 * without them says nothing of a size that ran with them.
 */

/** Part of the budget in pieces from which on a search may gain by it: less is within what it is off by anyway. */
const NOTABLE = 0.05;

/** Whether the next probe on a rung runs with segments that can grow. */
export function growsOn(rung: Rung, observations: readonly Observation[], c: Constraints): boolean {
  if (!c.expandable) return false;
  const here = observations.filter((o) => sameRung(o.rung, rung));
  if (isWorse(here)) return false;
  return observations.some((o) => o.expandable) || here.some((o) => isWorthIt(o, c));
}

/** The observations as they count where segments can grow (`grows`), or cannot. */
export function countedAs(grows: boolean, observations: readonly Observation[]): readonly Observation[] {
  if (!grows) return observations.filter((o) => !o.expandable);
  const most = Math.max(0, ...observations.filter((o) => o.expandable && o.outcome === 'fit').map((o) => o.microBatch));
  return observations.flatMap((o) => {
    if (o.expandable) return [o];
    return o.outcome === 'device_oom' && o.microBatch <= most ? [] : [{ ...o, fresh: false }];
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
  const tried = here.filter((o) => o.expandable).map((o) => o.microBatch);
  const failures = here.filter((o) => isFailure(o) && !o.expandable && canHelp(o) !== false);
  const smallest = failures.toSorted((a, b) => a.microBatch - b.microBatch)[0];
  if (smallest === undefined || tried.some((size) => size >= smallest.microBatch)) return null;
  const failed = here.filter((o) => isFailure(o) && o.expandable);
  if (failed.some((o) => o.microBatch <= smallest.microBatch)) return null;
  return { size: smallest.microBatch, certain: canHelp(smallest) === true };
}

/** A size that fitted without them ran out of memory with them. */
function isWorse(here: readonly Observation[]): boolean {
  const fits = here.filter((o) => o.outcome === 'fit');
  return here.some(
    (o) =>
      o.expandable &&
      isFailure(o) &&
      fits.some((fit) => !fit.expandable && fit.microBatch >= o.microBatch) &&
      !fits.some((fit) => fit.expandable && fit.microBatch >= o.microBatch),
  );
}

function isWorthIt(o: Observation, { goal, ownBatch, budgetBytes }: Constraints): boolean {
  if (!isFailure(o) || o.expandable || canHelp(o) === false) return false;
  return (goal === 'keep' && o.microBatch === ownBatch) || (o.unallocatedBytes ?? 0) >= NOTABLE * budgetBytes;
}

const isFailure = (o: Observation): boolean => o.outcome === 'device_oom' && o.phase !== 'load';

/** Null: the figures are unknown. */
function canHelp({ refusedBytes, unallocatedBytes, freeBytes }: Observation): boolean | null {
  if (!refusedBytes || unallocatedBytes === null || unallocatedBytes === undefined) return null;
  return refusedBytes <= unallocatedBytes + (freeBytes ?? 0);
}
