import { type Job, MIB, type Result } from './machine.js';

/** A number from 0 to 1, the same ones for each seed. */
export type Draw = () => number;

export function drawsOf(seed: number): Draw {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** How the peaks of steps differ: by which part of what the samples take one step takes more than the least, from a draw. */
export interface Variety {
  step(draw: Draw): number;
  /** The highest of most trainings of 200 steps. */
  highest: number;
}

const sum = (count: number, draw: Draw): number => Array.from({ length: count }, draw).reduce((a, b) => a + b, 0);

export const varieties: Record<string, Variety> = {
  /** Pictures of another size in each batch, out of eleven. */
  'batches of eleven sizes': { step: (draw) => 0.03 * Math.floor(11 * draw()), highest: 0.3 },
  /** As many boxes as the pictures happen to hold, or tokens as an expert happens to get. */
  'sums of chances': { step: (draw) => (0.2 * sum(12, draw)) / 12, highest: 0.2 * (0.5 + 2.8 / 12) },
  /** Garbage of none, one or two steps before. */
  garbage: { step: (draw) => 0.02 * Math.floor(2 * draw() + 1.5 * draw()), highest: 0.06 },
  /** One batch in seven of the smallest samples. */
  'few small batches': { step: (draw) => (draw() < 1 / 7 ? 0 : 0.5), highest: 0.5 },
};

export interface Varying {
  resident: number;
  perSample: number;
  /** On a GPU whose allocator's segments can grow; else on the CPU device. */
  caching: boolean;
}

interface VaryingJob extends Job {
  /** Whether a training of so many steps, with draws of its own, keeps within the budget. */
  lasts(size: number, steps: number): boolean;
  /** The size that fills the budget where one step takes that part more than the least. */
  enough(highest: number): number;
}

/** What a GPU's driver holds beside the allocator. */
const CONTEXT = 500 * MIB;

/** Each of its processes draws other steps. */
export function varying(
  { resident, perSample, caching }: Varying,
  { step }: Variety,
  budgetBytes: number,
  draw: Draw,
): VaryingJob {
  const budget = budgetBytes - (caching ? CONTEXT : 0);
  const take = (size: number): number => resident + size * perSample * (1 + step(draw));
  return {
    lasts: (size, steps) => Array.from({ length: steps }, () => take(size)).every((peak) => peak <= budget),
    enough: (highest) => (budget - resident) / perSample / (1 + highest),
    run: (probe) => {
      const peaks: number[] = [];
      const add = (until: number): void => {
        while (peaks.length < until) peaks.push(take(probe.micro_batch));
      };
      add(Math.max(probe.steps, caching ? probe.rest_steps + 1 : 0)); // the allocator is at rest from the first step on
      if ((told(peaks).spread_bytes ?? 0) > probe.spread_bytes) add(probe.spread_steps);
      return Math.max(...peaks) > budget ? { outcome: 'device_oom' } : measured(peaks, resident, caching);
    },
  };
}

function measured(peaks: number[], resident: number, caching: boolean): Result {
  const most = Math.round(Math.max(...peaks));
  return {
    outcome: 'fit',
    steps: peaks.length,
    ...told(peaks),
    peaks: {
      total_bytes: most + (caching ? CONTEXT : 0),
      forward_backward_bytes: most,
      optimizer_bytes: resident,
      reserved_bytes: caching ? most : null,
      resident_bytes: resident,
    },
  };
}

/** What the hook tells of the peaks (hook/probe/step_peaks.py). */
export function told(peaks: readonly number[]): Pick<Result, 'spread_bytes' | 'excess_bytes'> {
  const steps = peaks.slice(1).toSorted((a, b) => a - b);
  const at = (place: number): number => steps.at(place) as number;
  return {
    ...(steps.length < 3 ? {} : { spread_bytes: at(-1) - at(Math.floor(steps.length / 4)) }),
    ...(steps.length < 5 ? {} : { excess_bytes: Math.min(at(-1) - at(-3), at(-3) - at(Math.floor(steps.length / 2))) }),
  };
}
