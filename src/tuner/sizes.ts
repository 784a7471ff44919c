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

/** The multiples of `multiple` from `lo` to `hi`; null: there is none. */
function multiples(lo: number, hi: number, multiple: number): Sizes | null {
  const [first, last] = [Math.ceil(lo / multiple), Math.floor(hi / multiple)];
  if (first > last) return null;
  const counts = range(first, last);
  const times = (member: number | null): number | null => (member === null ? null : member * multiple);
  return {
    lo: first * multiple,
    hi: last * multiple,
    down: (size) => times(counts.down(size / multiple)),
    up: (size) => times(counts.up(size / multiple)),
  };
}

/** No value of a knob is rounded to more than this. */
const ROUNDEST = 64;

/** Numbers as round as 2 per cent of them allow (even above 100, multiples of 64 above 3200), with `lo` and `hi` themselves. */
export function roundNumbers(lo: number, hi: number): Sizes {
  const roundness = (size: number): number => {
    let power = 1;
    while (2 * power <= Math.min(ROUNDEST, size / 50)) power *= 2;
    return power;
  };
  return {
    lo,
    hi,
    down: (size) => {
      if (size < lo) return null;
      if (size >= hi) return hi;
      const whole = Math.floor(size);
      return Math.max(lo, whole - (whole % roundness(whole)));
    },
    up: (size) => {
      if (size > hi) return null;
      if (size <= lo) return lo;
      const power = roundness(Math.ceil(size));
      return Math.min(hi, Math.ceil(size / power) * power);
    },
  };
}

/** The values that a search of a knob may use; null: there is none. */
export function valuesBetween(lo: number, hi: number, multipleOf: number | null): Sizes | null {
  if (lo > hi) return null;
  return multipleOf === null ? roundNumbers(lo, hi) : multiples(lo, hi, multipleOf);
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

/** Below this a sample is more than 2 per cent. */
export const SMALL = 50;

/** The smallest size above `top` that would close the search if it failed: 2 per cent more, and at least two samples. */
export function closingSize(top: number): number {
  return top + Math.max(2, Math.ceil(top / 50));
}

/** Whether `top` is near enough to the largest size that may fit when `ceiling` is known not to. */
export function isCloseEnough(top: number, ceiling: number, sizes: Sizes): boolean {
  const next = sizes.up(top + 1);
  return next === null || next >= ceiling || ceiling <= closingSize(top);
}

/** The smallest size that would still be near enough to the largest one below `ceiling`. */
export function nearEnoughTo(ceiling: number): number {
  return Math.min(ceiling - 2, Math.floor(((ceiling - 1) * 50) / 51) + 1);
}
