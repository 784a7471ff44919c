/** Sizes as messages write them. All of these programs count in powers of 1024, whatever their unit looks like. */
const UNITS: readonly (readonly [string, number])[] = [
  ['bytes', 1],
  ['byte', 1],
  ['kib', 1024],
  ['mib', 1024 ** 2],
  ['gib', 1024 ** 3],
  ['tib', 1024 ** 4],
  ['kb', 1024],
  ['mb', 1024 ** 2],
  ['gb', 1024 ** 3],
  ['tb', 1024 ** 4],
  ['ki', 1024],
  ['mi', 1024 ** 2],
  ['gi', 1024 ** 3],
  ['b', 1],
  ['k', 1024],
  ['m', 1024 ** 2],
  ['g', 1024 ** 3],
  ['t', 1024 ** 4],
];

/** No device holds as much: torch prints 2^64 for no limit, and counters wrap. Doubles are inexact from here on, too. */
const IMPOSSIBLE = Number.MAX_SAFE_INTEGER;

/** A number in canonical text: what it says, and where it stands. */
export interface Quantity {
  value: number;
  from: number;
  to: number;
}

/** The unit that begins at `at`, longest first; `must` is the text that has to follow it. */
export function unitAt(text: string, at: number, must: string): { factor: number; to: number } | null {
  for (const [name, factor] of UNITS) {
    if (text.startsWith(name, at) && text.startsWith(must, at + name.length)) return { factor, to: at + name.length };
  }
  return null;
}

/** The unit that ends at `to`. */
export function unitBefore(text: string, to: number): { factor: number; from: number } | null {
  for (const [name, factor] of UNITS) {
    const from = to - name.length;
    if (from > 0 && text.startsWith(name, from) && isDigit(text.charCodeAt(from - 1))) return { factor, from };
  }
  return null;
}

/** A decimal number that begins at `at`: `1,000`, `13.20`, `1.34e+10`. */
export function numberAt(text: string, at: number): Quantity | null {
  let to = at;
  while (to < text.length && to - at < 40 && isNumeric(text.charCodeAt(to))) to += 1;
  if (text.charCodeAt(to) === 101 && /^e[+-]?\d{1,3}/.test(text.slice(to, to + 5))) {
    to += 2;
    while (to < text.length && isDigit(text.charCodeAt(to))) to += 1;
  }
  while (to > at && !isDigit(text.charCodeAt(to - 1))) to -= 1;
  return read(text, at, to, 'first');
}

/** The decimal number that ends at `to`. */
export function numberBefore(text: string, to: number): Quantity | null {
  let from = to;
  while (from > 0 && to - from < 40 && isNumeric(text.charCodeAt(from - 1))) from -= 1;
  // A sentence's full stop or a list's comma is no part of it.
  while (from < to && !isDigit(text.charCodeAt(from))) from += 1;
  return read(text, from, to, 'last');
}

function read(text: string, from: number, to: number, keep: 'first' | 'last'): Quantity | null {
  if (to <= from || !isDigit(text.charCodeAt(from))) return null;
  let start = from;
  let end = to;
  if (text.slice(from, to).includes(',')) {
    const groups = text.slice(from, to).split(',');
    // `1,000,000` is one number; in `0,100` the comma separates two.
    const grouped =
      groups.slice(1).every((g) => /^\d{3}(\.\d+)?$/.test(g)) && /^[1-9]\d{0,2}$/.test(groups[0] as string);
    // Some locales write `1900,00 MiB`.
    if (!grouped && keep === 'first' && /^\d{1,7},\d{2}$/.test(text.slice(from, to))) {
      return { value: Number(text.slice(from, to).replace(',', '.')), from, to };
    }
    if (!grouped && keep === 'first') end = from + (groups[0] as string).length;
    if (!grouped && keep === 'last') start = to - (groups.at(-1) as string).length;
  }
  const value = Number(text.slice(start, end).replaceAll(',', ''));
  return Number.isFinite(value) ? { value, from: start, to: end } : null;
}

/** Whole bytes, or null for what no memory can hold. */
export function toBytes(value: number, factor: number): number | null {
  const bytes = Math.round(value * factor);
  return bytes >= 0 && bytes < IMPOSSIBLE ? bytes : null;
}

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57;
}

function isNumeric(code: number): boolean {
  return isDigit(code) || code === 44 || code === 46;
}
