import { usageError } from '../common/errors.js';

/** An option's whole number; null: not given. Throws OOMTUNE_USAGE with `remedy`. */
export function readNumber(
  flag: string,
  value: unknown,
  { least = 0, most, remedy }: { least?: number; most?: number; remedy: string },
): number | null {
  if (value === undefined) return null;
  const number = Number(value);
  if (/^-?\d+$/.test(String(value)) && number >= least && number <= (most ?? Number.MAX_SAFE_INTEGER)) return number;
  const range = most === undefined ? `of at least ${least}` : `from ${least} to ${most}`;
  throw usageError(`Expected ${flag} to be a whole number ${range}, got "${value}".`, remedy);
}
