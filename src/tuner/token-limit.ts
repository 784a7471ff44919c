import type { JobOptions } from '../contract/options.js';

/** How many of the longest samples have at most so many tokens. `longest`: tokens of such a one; null: not known. */
export function longestWithin(tokens: JobOptions['microBatchTokens'], longest: number | null): number {
  if (typeof tokens !== 'number' || longest === null) return Number.POSITIVE_INFINITY;
  return Math.max(1, Math.floor(tokens / longest));
}
