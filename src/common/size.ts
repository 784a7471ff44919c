import { OomtuneError } from './errors.js';

const UNITS: Record<string, number> = {
  b: 1,
  k: 1024,
  kib: 1024,
  kb: 1000,
  m: 1024 ** 2,
  mib: 1024 ** 2,
  mb: 1000 ** 2,
  g: 1024 ** 3,
  gib: 1024 ** 3,
  gb: 1000 ** 3,
  t: 1024 ** 4,
  tib: 1024 ** 4,
  tb: 1000 ** 4,
};

/** Bytes of `24GiB`, `24GB` (powers of ten), `1073741824B` or `80%` of `totalBytes`; a unit is needed. Throws OOMTUNE_BAD_SIZE. */
export function parseSize(text: string, totalBytes?: number): number {
  const match = /^(\d+(?:\.\d+)?)\s*([a-z]*|%)$/i.exec(text.trim());
  const amount = match ? Number(match[1]) : Number.NaN;
  const unit = match?.[2]?.toLowerCase() ?? '';
  if (match && unit === '' && amount > 0) {
    const [digits] = match;
    throw new OomtuneError(
      'OOMTUNE_BAD_SIZE',
      `The memory size "${text}" has no unit.`,
      `Write ${digits}GiB or ${digits}MiB (${digits}B, if bytes are meant).`,
    );
  }
  let bytes = Number.NaN;
  if (unit === '%') {
    if (amount > 0 && amount <= 100) bytes = Math.floor(((totalBytes ?? Number.NaN) * amount) / 100);
  } else if (Object.hasOwn(UNITS, unit)) {
    bytes = Math.floor(amount * (UNITS[unit] as number));
  }
  if (!Number.isSafeInteger(bytes) || bytes <= 0) {
    throw new OomtuneError(
      'OOMTUNE_BAD_SIZE',
      `Expected a memory size such as 24GiB, 800MiB or 80%, got "${text}".`,
      'Write a number above 0 and a unit: GiB, MiB, KiB (powers of 1024), GB, MB (powers of 1000), or a percentage of the device.',
    );
  }
  return bytes;
}

/** `25769803776` → `24 GiB`; three significant digits, binary units. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let index = 0;
  while (Math.abs(value) >= 1024 && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  const digits = index === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${Number(value.toFixed(digits))} ${units[index]}`;
}
