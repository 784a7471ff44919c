import type { Curve, Observation } from '../contract/measurement.js';
import { type Rung, rungName, sameRung } from '../contract/rung.js';
import { pointsOf } from './curve-point.js';
import { MemoryModel } from './model.js';
import { peakBytes } from './peaks.js';

/** One curve for each rung that was tried, in the order in which they were. */
export function curvesOf(journal: readonly Observation[], budgetBytes: number | null): Curve[] {
  const rungs: Rung[] = [];
  for (const { rung } of journal) if (!rungs.some((known) => sameRung(known, rung))) rungs.push(rung);
  return rungs.map((rung) => curveOf(rung, journal, budgetBytes));
}

function curveOf(rung: Rung, journal: readonly Observation[], budgetBytes: number | null): Curve {
  const tried = journal.filter((one) => sameRung(one.rung, rung));
  const fits = new Map<number, number>();
  for (const { outcome, micro_batch: microBatch, peaks } of tried) {
    const peak = peakBytes(peaks);
    if (outcome === 'fit' && peak !== null) fits.set(microBatch, peak);
  }
  const failed = tried
    .filter(({ outcome }) => outcome === 'device_oom')
    .map(({ micro_batch: microBatch }) => microBatch);
  const ascending = (a: number, b: number): number => a - b;
  return {
    rung: rungName(rung),
    fits: [...fits].sort((a, b) => a[0] - b[0]),
    failed: [...new Set(failed)].sort(ascending),
    line: lineOf(tried, budgetBytes),
  };
}

/** The tuner's own prediction beyond the last size that fitted: two values of it make the line. */
function lineOf(tried: readonly Observation[], budgetBytes: number | null): Curve['line'] {
  const points = pointsOf(tried);
  const last = points.at(-1);
  if (last === undefined || points.length < 2) return null;
  const model = new MemoryModel(points, budgetBytes ?? last.total);
  const [near, far] = [model.peakAt(last.microBatch + 1), model.peakAt(last.microBatch + 2)];
  if (near === null || far === null || !Number.isFinite(far)) return null;
  const slope = far - near;
  return { base: near - slope * (last.microBatch + 1), slope };
}
