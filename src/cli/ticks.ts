/** About `count` round values from 0 to `most`, for an axis. */

/** 1, 2 or 5 times a power of ten, at least one. */
export function countTicks(most: number, count: number): number[] {
  const rough = Math.max(1, most / count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((times) => times * power >= rough) ?? 10) * power;
  return multiples(step, most);
}

/** Powers of two, so that binary units stay round. */
export function byteTicks(most: number, count: number): number[] {
  return multiples(2 ** Math.ceil(Math.log2(Math.max(1, most / count))), most);
}

function multiples(step: number, most: number): number[] {
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
}
