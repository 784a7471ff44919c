const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };
const WORDS = /^(?:\d+(?:\.\d+)?[smhd])+$/;
const CLOCK = /^(?:(\d+)-)?(\d+):(\d\d):(\d\d)$/;

/** Seconds of `4h`, `1h30m`, `45s`, `2d`, or Slurm's `H:MM:SS` and `D-H:MM:SS`; null: not a time, or zero. */
export function parseSpan(text: string): number | null {
  const seconds = inSeconds(text.trim().toLowerCase());
  return seconds !== null && seconds > 0 && Number.isSafeInteger(Math.ceil(seconds)) ? seconds : null;
}

function inSeconds(text: string): number | null {
  const clock = CLOCK.exec(text);
  if (clock !== null) {
    const [, days = '0', hours, minutes, seconds] = clock;
    return Number(days) * 86_400 + Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds);
  }
  if (!WORDS.test(text)) return null;
  const parts = text.match(/\d+(?:\.\d+)?[smhd]/g) ?? [];
  return parts.reduce((sum, part) => sum + Number(part.slice(0, -1)) * (UNITS[part.at(-1) as string] as number), 0);
}

/** `1h30m`, in the units that `parseSpan` reads. */
export function formatSpan(seconds: number): string {
  let left = seconds;
  const parts: string[] = [];
  for (const unit of ['d', 'h', 'm'] as const) {
    const size = UNITS[unit] as number;
    const count = Math.floor(left / size);
    if (count > 0) parts.push(`${count}${unit}`);
    left -= count * size;
  }
  if (left > 0 || parts.length === 0) parts.push(`${Math.round(left * 100) / 100}s`);
  return parts.join('');
}
