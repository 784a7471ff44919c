import type { Observation, Peaks } from '../contract/measurement.js';
import { lastingPeak, yetToCome } from './peaks.js';

/** The peaks of one size that fitted, in bytes; of a loop whose peaks rise or vary from step to step, those that it will come to. */
export interface CurvePoint {
  microBatch: number;
  /** Everything counted: what the budget is compared with. */
  total: number;
  /** Peak of forward and backward: affine in the micro-batch from small sizes on. `total` where phases were not told apart. */
  active: number;
  /** Peak of the optimizer's step: a constant that hides the slope at small sizes. 0 where unknown. */
  flat: number;
  /** Of what forward and backward need, what is there at any size: weights and the optimizer's state. Null: unknown. */
  base: number | null;
  /** Total less what the framework reserved: contexts and the like. */
  context: number;
  /** In use when a step starts; null if unknown. */
  resident: number | null;
  /** What a step needs where libraries do with the least of workspace; null: not known, or all that is allocated. */
  needed: number | null;
  /** Measured with gradients kept from one micro-batch to the next. */
  accumulating: boolean;
  phased: boolean;
  caching: boolean;
  retries: number;
  /** Libraries that took part do with less memory where it is short. */
  flexible: boolean;
}

/** Where a caching allocator comes this near to the budget it reuses what it holds, and its peak tells no slope. */
const SATURATED = 0.97;
/** Without separate phases: the rise over the lowest peak that shows that a point has left the optimizer's floor. */
export const RISEN = 1.05;

/**
 * The points of the observations that fitted and could be measured, ascending: of each size the last in a fresh process, or the last
 * where there is none. A process that runs a size again may hold more than it did the first time.
 */
export function pointsOf(observations: readonly Observation[]): CurvePoint[] {
  const bySize = new Map<number, CurvePoint>();
  const told = [...observations.filter((o) => !o.fresh), ...observations.filter((o) => o.fresh)];
  for (const o of told) {
    const point = pointOf(o);
    if (point) bySize.set(o.micro_batch, point);
  }
  return [...bySize.values()].sort((a, b) => a.microBatch - b.microBatch);
}

function pointOf(o: Observation): CurvePoint | null {
  const total = lastingPeak(o);
  if (o.outcome !== 'fit' || total === null) return null;
  const {
    forward_backward_bytes: forwardBackwardBytes,
    optimizer_bytes: optimizerBytes,
    resident_bytes: residentBytes,
    needed_bytes: needed = null,
  } = o.peaks;
  const growth = yetToCome(o);
  const active = forwardBackwardBytes === null ? total : forwardBackwardBytes + growth;
  const flat = forwardBackwardBytes === null ? 0 : (optimizerBytes ?? 0) + growth;
  const caching = (o.peaks.reserved_bytes ?? 0) > 0;
  const held = caching ? (o.peaks.reserved_bytes as number) + growth : Math.max(active, flat);
  return {
    microBatch: o.micro_batch,
    total,
    active,
    flat,
    base: baseOf(o.peaks),
    context: Math.max(0, total - held),
    resident: residentBytes,
    needed,
    accumulating: o.accumulation > 1,
    phased: forwardBackwardBytes !== null,
    caching,
    retries: o.alloc_retries,
    flexible: o.flexible_workspaces === true,
  };
}

/** The optimizer's step holds weights, gradients, its state, and at most once more as much as the gradients. */
function baseOf({ optimizer_bytes: optimizer, gradient_bytes: gradients }: Peaks): number | null {
  return optimizer === null || gradients === null ? null : Math.max(0, optimizer - 2 * gradients);
}

/** A caching allocator was not so near to the budget that it had to reuse what it holds: its peak tells a slope. */
export function isFree({ caching, total, retries }: CurvePoint, budgetBytes: number): boolean {
  return !caching || (total < SATURATED * budgetBytes && retries === 0);
}

/** What the driver level holds beyond the framework's own peak: contexts, cached blocks, fragments. */
export function slackOf(r: CurvePoint): number {
  return Math.max(0, r.total - Math.max(r.active, r.flat));
}

/** Bytes for each sample by which the peak of forward and backward rises from one size to the next. */
export function slopeOf(a: CurvePoint, b: CurvePoint): number {
  return (b.active - a.active) / (b.microBatch - a.microBatch);
}

/**
 * A line must not mix peaks with and without resident gradients. Those without (the larger sizes, if there are both) do
 * as soon as there are two; until then those with gradients give a line that is a little too high: safe.
 */
export function sameGradients(points: readonly CurvePoint[]): readonly CurvePoint[] {
  const without = points.filter((r) => !r.accumulating);
  return without.length > 1 || without.length === points.length ? without : points.filter((r) => r.accumulating);
}

/** Whether the last peak has clearly left the lowest. */
export function hasRisen(points: readonly CurvePoint[]): boolean {
  return (points.at(-1)?.total ?? 0) >= RISEN * Math.min(...points.map((r) => r.total));
}

/** Of peaks that mix the phases only those tell a slope that have left the optimizer's floor. */
export function risenOf(points: readonly CurvePoint[]): readonly CurvePoint[] {
  const floor = Math.min(...points.map((r) => r.total));
  const clear = points.filter((r) => r.total >= RISEN * floor);
  const [first, last] = [points[0], points.at(-1)];
  if (clear.length !== 1 || points.length > 2 || !first || !last) return clear;
  // Of two sizes, the one that has left it may have left it at once: then the peak grows nearly as the size does.
  const chord = (last.total - first.total) / (last.microBatch - first.microBatch);
  return chord >= 0.7 * (last.total / last.microBatch) ? [first, last] : clear;
}
