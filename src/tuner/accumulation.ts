import { listed, range, type Sizes } from './sizes.js';
import type { Constraints } from './types.js';

/** How micro-batch and accumulation make up the effective batch. */
export interface EffectivePlan {
  /** Samples per optimizer step and device; null: the user fixed none, accumulation stays 1. */
  readonly perDevice: number | null;
  /** Accumulation that a probe of `size` needs: 2 where the answer would accumulate, so that gradients are resident. */
  probeAccumulation(size: number): number;
  /** The micro-batches up to `max` that `config` may use, from `least` (--min-batch) on; null if there is none. */
  choices(max: number, least?: number): Sizes | null;
  /** Accumulation of an answer with this micro-batch. */
  accumulation(size: number): number;
  /** Sentences about an effective batch that is not exact, or slow because it is; `max`: the largest size that fits. */
  notes(size: number, max: number): string[];
}

/**
 * micro x accumulation x world = effective, exactly, wherever whole numbers allow it: the micro-batch is a divisor of
 * effective / world. Where the world size does not divide the effective batch, or no divisor lies in the allowed range,
 * the nearest product is taken and a note says why.
 */
export function planEffective(c: Constraints): EffectivePlan {
  const { effectiveBatch, worldSize, minBatch } = c;
  if (effectiveBatch === null) {
    return {
      perDevice: null,
      probeAccumulation: () => 1,
      choices: (max, least = minBatch) => (max >= least ? range(least, max) : null),
      accumulation: () => 1,
      notes: () => [],
    };
  }
  const perDevice = Math.max(1, Math.round(effectiveBatch / worldSize));
  const fixed = c.accumulation === 'off';
  const times = (size: number) => (fixed ? 1 : Math.max(1, Math.round(perDevice / size)));
  return {
    perDevice,
    probeAccumulation: (size) => (size < perDevice && !fixed ? 2 : 1),
    choices: (max, least = minBatch) => {
      if (fixed) return perDevice <= max ? listed([perDevice]) : null;
      const upper = Math.min(max, perDevice);
      const exact = divisors(perDevice).filter((size) => size >= least && size <= upper);
      if (exact.length > 0) return listed(exact);
      const nearest = nearestSizes(perDevice, least, Math.max(max, least));
      return max >= least ? listed(nearest) : null;
    },
    accumulation: times,
    notes: (size, max) => {
      const effective = size * times(size) * worldSize;
      if (effective === effectiveBatch) return manyParts(size, times(size), perDevice, max, worldSize);
      const why =
        effectiveBatch % worldSize !== 0
          ? `${effectiveBatch} cannot be shared evenly by ${worldSize} devices`
          : `no micro-batch in the allowed range divides ${perDevice}`;
      return [`The effective batch is ${effective} instead of ${effectiveBatch}: ${why}.`];
    },
  };
}

/** Why the options leave no micro-batch to try. */
export function noSize({ minBatch, maxBatch, accumulation }: Constraints, perDevice: number | null): string {
  const range = `the micro-batch may be from ${minBatch} to ${maxBatch ?? 'any size'} (--max-batch, and the samples that there are)`;
  if (perDevice === null || minBatch > (maxBatch ?? minBatch)) return range;
  if (accumulation === 'off') return `without accumulation the micro-batch would have to be ${perDevice}, but ${range}`;
  return `no such micro-batch makes up ${perDevice}: ${range}`;
}

/** An effective batch with few divisors (a prime, say) can be exact only in many small parts: a nearby one is faster. */
function manyParts(size: number, parts: number, perDevice: number, max: number, worldSize: number): string[] {
  const larger = divisors(perDevice).some((d) => d > size && d <= max);
  if (parts < 8 || size * 4 > max || larger) return [];
  const fewer = Math.ceil(perDevice / max);
  const near = Math.round(perDevice / fewer) * fewer * worldSize;
  return [
    `${perDevice * worldSize} can be made up exactly only by ${parts} micro-batches of ${size}; an effective batch of ${near} would need ${fewer}.`,
  ];
}

export function divisors(n: number): number[] {
  const found: number[] = [];
  for (let d = 1; d * d <= n; d += 1) {
    if (n % d === 0) found.push(d, n / d);
  }
  return [...new Set(found)].sort((a, b) => a - b);
}

/** The sizes whose best multiple comes nearest to `target`. */
function nearestSizes(target: number, min: number, max: number): number[] {
  let best: number[] = [];
  let distance = Number.POSITIVE_INFINITY;
  for (let size = min; size <= Math.min(max, Math.max(min, target)); size += 1) {
    const off = Math.abs(size * Math.max(1, Math.round(target / size)) - target);
    if (off < distance) {
      best = [];
      distance = off;
    }
    if (off === distance) best.push(size);
  }
  return best;
}
