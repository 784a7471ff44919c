/** Measured at a size. */
interface Sized {
  microBatch: number;
}

/** Bytes against micro-batch: `value` at the size `at`, and `slope` more for each sample. */
export interface Line {
  at: number;
  value: number;
  slope: number;
}

/** Sizes nearer than this part of the larger to it tell no slope: what one process takes more than another decides it. */
export const APART = 0.75;

/** The last point, and the nearest before it that is far enough off for a slope that noise does not decide. */
function wellApart<P extends Sized>(points: readonly P[]): [P, P] | null {
  const last = points.at(-1);
  if (!last) return null;
  const before = points.findLast((r) => r.microBatch <= APART * last.microBatch) ?? points.at(-2);
  return before && before !== last ? [before, last] : null;
}

/** Through the last two points that are far enough apart; null: there are no two. */
export function lineThrough<P extends Sized>(points: readonly P[], value: (point: P) => number): Line | null {
  const pair = wellApart(points);
  if (!pair) return null;
  const [before, last] = pair;
  const slope = (value(last) - value(before)) / (last.microBatch - before.microBatch);
  return { at: last.microBatch, value: value(last), slope };
}

/** A line that leaves out the last point, made to go through it. */
export function anchored<P extends Sized>(
  line: Line | null,
  last: P | undefined,
  value: (point: P) => number,
): Line | null {
  return line && last && last.microBatch > line.at
    ? { at: last.microBatch, value: value(last), slope: line.slope }
    : line;
}

export function valueAt(line: Line, size: number): number {
  return line.value + line.slope * (size - line.at);
}

/** The size at which the line meets `bytes`; endless where it does not rise. */
export function solve(line: Line, bytes: number): number {
  if (line.slope <= 0) return line.value <= bytes ? Number.POSITIVE_INFINITY : line.at;
  return line.at + (bytes - line.value) / line.slope;
}

/** The steepest rise between neighbours, bytes for each sample; 0 where nothing rises. Pairs of size and bytes, ascending. */
export function steepest(points: readonly (readonly [number, number])[]): number {
  let most = 0;
  for (const [at, [size, bytes]] of points.entries()) {
    const before = points[at - 1];
    if (before && size > before[0]) most = Math.max(most, (bytes - before[1]) / (size - before[0]));
  }
  return most;
}
