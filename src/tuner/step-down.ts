import type { JobOptions } from '../contract/options.js';
import { type Config, withMicroBatch } from '../contract/rung.js';
import { divisors } from './accumulation.js';

/**
 * The next smaller configuration at the same effective batch after a late OOM: at most half the micro-batch, the rest by
 * accumulation. Null when the micro-batch is 1 already, or the options allow no smaller one.
 */
export function stepDown(config: Config, options: Pick<JobOptions, 'accumulation' | 'minBatch'>): Config | null {
  const perDevice = config.micro_batch * config.accumulation;
  if (config.micro_batch <= 1 || options.accumulation === 'off') return null;
  const smaller = largestDivisor(perDevice, Math.floor(config.micro_batch / 2));
  if (smaller < options.minBatch) return null;
  return withMicroBatch(config, smaller, perDevice / smaller);
}

/** The next smaller configuration where no effective batch is to be kept: half the micro-batch. Null when the options allow no smaller one. */
export function halved(config: Config, { minBatch }: Pick<JobOptions, 'minBatch'>): Config | null {
  const { world_size: world, accumulation } = config;
  const size = Math.floor(config.micro_batch / 2);
  if (size < Math.max(1, minBatch)) return null;
  return { ...withMicroBatch(config, size, accumulation), effective_batch: size * accumulation * world };
}

/** Largest divisor of `value` that is at most `limit`, or 1. */
export const largestDivisor = (value: number, limit: number): number =>
  divisors(value).findLast((divisor) => divisor <= limit) ?? 1;
