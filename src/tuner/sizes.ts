/** The micro-batches that a search may use: whole numbers in a range, or a list (the divisors of an effective batch). */
export interface Sizes {
  readonly lo: number;
  /** Largest member; null: no limit. */
  readonly hi: number | null;
  /** Largest member that is at most `size`; null if there is none. */
  down(size: number): number | null;
  /** Smallest member that is at least `size`; null if there is none. */
  up(size: number): number | null;
}

/** Every whole number from `lo` to `hi` (null: without end). Empty ranges have no members. */
export function range(lo: number, hi: number | null): Sizes {
  return {
    lo,
    hi,
    down: (size) => {
      const member = Math.min(Math.floor(size), hi ?? Number.POSITIVE_INFINITY);
      return member >= lo ? member : null;
    },
    up: (size) => {
      const member = Math.max(Math.ceil(size), lo);
      return hi === null || member <= hi ? member : null;
    },
  };
}

/** The members of a list; at least one. */
export function listed(members: readonly number[]): Sizes {
  const sorted = [...new Set(members)].sort((a, b) => a - b);
  if (sorted[0] === undefined) throw new RangeError('Expected at least one size.');
  return {
    lo: sorted[0],
    hi: sorted.at(-1) as number,
    down: (size) => sorted.findLast((member) => member <= size) ?? null,
    up: (size) => sorted.find((member) => member >= size) ?? null,
  };
}

/** Below this a search is to end within one sample of the maximum, from here on within 2 per cent. */
export const SMALL = 50;
const TOLERANCE = 0.02;

/** Whether `top` is near enough to the largest size that may fit when `ceiling` is known not to. */
export function isCloseEnough(top: number, ceiling: number, sizes: Sizes): boolean {
  const next = sizes.up(top + 1);
  if (next === null || next >= ceiling) return true;
  const best = ceiling - 1;
  return best < SMALL ? best - top <= 1 : top >= (1 - TOLERANCE) * best;
}

/** The smallest size that would still be near enough to the largest one below `ceiling`. */
export function nearEnoughTo(ceiling: number): number {
  const best = ceiling - 1;
  return best < SMALL ? best - 1 : Math.ceil((1 - TOLERANCE) * best);
}

/** The smallest size above `top` that would close the search if it failed. */
export function closingSize(top: number): number {
  return top + 2 < SMALL ? top + 2 : Math.max(top + 1, Math.floor(top / (1 - TOLERANCE)) + 1);
}
