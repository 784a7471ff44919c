import type { Observation } from '../contract/measurement.js';

/**
 * Segments of a caching allocator that can grow (PyTorch's `expandable_segments:True`) lose next to nothing to fragments, change
 * no number and cost nothing, so a search has them from its first launch on. Only the batch that a job asks for by itself is
 * tried without them first: what fits as it stands is left as it stands.
 */

/** The observations as they count with (`grows`) or without such segments. */
export function countedAs(grows: boolean, observations: readonly Observation[]): readonly Observation[] {
  if (!grows) return observations.filter((o) => !o.expandable_segments);
  return observations.flatMap((o) => {
    if (o.expandable_segments) return [o];
    // A process without them tells what a sample takes. That it ran out of memory says nothing, unless no order of the pieces had helped.
    if (o.outcome === 'device_oom') return failsInPieces(o) ? [] : [o];
    return [{ ...o, fresh: false }];
  });
}

/** Whether a size that ran out of memory while training may fit once memory is no longer in pieces; true where the figures are unknown. */
export function failsInPieces(o: Observation): boolean {
  if (o.outcome !== 'device_oom' || o.phase === 'load' || o.expandable_segments) return false;
  const { refused_bytes: refusedBytes, unallocated_bytes: unallocatedBytes, free_bytes: freeBytes } = o;
  if (!refusedBytes || unallocatedBytes === null || unallocatedBytes === undefined) return true;
  return refusedBytes <= unallocatedBytes + (freeBytes ?? 0);
}
