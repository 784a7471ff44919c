import type { Step } from '../../contract/hook.js';

interface Point {
  step: number;
  bytes: number;
}

/** When there are more, every other point is dropped. */
const MOST_POINTS = 64;
const FEWEST_POINTS = 5;
/** By so much of all pairs, more have to rise than fall. */
const CONCORDANT = 0.6;
/** It has to rise by this part of its first value, or it may be a cache that fills once. */
const WORTH_TELLING = 0.1;

/**
 * Memory at the end of steps. It is flat once the optimizer's state exists; if it goes on rising, it is a leak, and no batch
 * size helps. Fits a line, as single steps may fall (hook/probe/step_phases.py judges probes in the same way).
 */
export class Growth {
  #points: Point[] = [];
  /** Steps from one kept point to the next at least. */
  #stride = 1;
  /** The script's variable last seen to grow with it; null: none. */
  keptBy: string | null = null;

  add(step: Step): void {
    this.keptBy = step.kept_by ?? this.keptBy;
    const bytes = step.resident_bytes ?? null;
    const last = this.#points.at(-1);
    if (bytes === null || step.n <= 2 || (last !== undefined && step.n < last.step + this.#stride)) return;
    this.#points.push({ step: step.n, bytes });
    if (this.#points.length <= MOST_POINTS) return;
    this.#points = this.#points.filter((_, index) => index % 2 === 0);
    this.#stride *= 2;
  }

  /** Bytes that each step adds, and over how many steps; null: memory does not go on rising. */
  perStep(): { bytesPerStep: number; steps: number } | null {
    const points = this.#points;
    const first = points[0];
    const last = points.at(-1);
    if (points.length < FEWEST_POINTS || !first || !last) return null;
    const whole = lineThrough(points);
    const later = lineThrough(points.slice(points.length >> 1));
    const bytesPerStep = Math.round(Math.min(whole.slope, later.slope));
    const steps = last.step - first.step;
    if (whole.concordance < CONCORDANT || bytesPerStep <= 0) return null;
    return bytesPerStep * steps < WORTH_TELLING * first.bytes ? null : { bytesPerStep, steps };
  }
}

/** Theil-Sen: the median slope of all pairs, and how far rising pairs outweigh falling ones. */
function lineThrough(points: readonly Point[]): { slope: number; concordance: number } {
  const slopes = points
    .flatMap((after, index) =>
      points.slice(0, index).map((before) => (after.bytes - before.bytes) / (after.step - before.step)),
    )
    .sort((a, b) => a - b);
  const balance = slopes.reduce((sum, slope) => sum + Math.sign(slope), 0);
  return { slope: slopes[slopes.length >> 1] as number, concordance: balance / slopes.length };
}
