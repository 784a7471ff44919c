const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** Three digits and a unit; an em dash for what is not known. */
export function bytes(value) {
  if (value === null || value === undefined) return '—';
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(size) >= 100 ? 0 : Math.abs(size) >= 10 ? 1 : 2;
  return `${Number(size.toFixed(digits))} ${UNITS[unit]}`;
}

/** `61.8 of 64 GiB`: both in the unit of the larger. */
export function bytesOf(value, whole) {
  if (value === null || value === undefined) return '—';
  if (!whole) return bytes(value);
  const unit = unitFor(Math.max(value, whole));
  return `${inUnit(value, unit)} of ${inUnit(whole, unit)} ${UNITS[unit]}`;
}

/** The power of 1024 that makes the largest of some sizes read well. */
export const unitFor = (largest) =>
  Math.max(0, Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, Math.abs(largest))) / 10)));
const inUnit = (value, unit) => {
  const size = value / 1024 ** unit;
  const digits = unit === 0 || Math.abs(size) >= 100 ? 0 : Math.abs(size) >= 10 ? 1 : 2;
  return String(Number(size.toFixed(digits)));
};
/** A size in a unit that was chosen for all of an axis. */
export const bytesIn = (value, unit) => `${inUnit(value, unit)} ${UNITS[unit]}`;

export function seconds(value) {
  if (value === null || value === undefined) return '—';
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 60) return `${Number(value.toPrecision(3))} s`;
  const whole = Math.round(value);
  const [days, hours, minutes] = [
    Math.floor(whole / 86_400),
    Math.floor(whole / 3600) % 24,
    Math.floor(whole / 60) % 60,
  ];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return `${minutes} min ${whole % 60} s`;
}

/** A span as a list shows it: `45 s`, `41 min`, `3 h 34 min`, `2 d 4 h`. */
export function span(value) {
  if (value === null || value === undefined) return '—';
  if (value < 60) return `${Math.floor(value)} s`;
  return value < 3600 ? `${Math.floor(value / 60)} min` : seconds(value);
}

export function number(value) {
  if (value === null || value === undefined) return '—';
  return value >= 100 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

export function ago(iso, now = Date.now()) {
  if (!iso) return '—';
  const passed = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (passed < 5) return 'just now';
  if (passed < 60) return `${Math.floor(passed / 5) * 5} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86_400)} d ago`;
}

/** How long it has taken, or did; null: it has not begun. */
export function took(from, to, now = Date.now()) {
  if (!from) return null;
  return Math.max(0, ((to ? Date.parse(to) : now) - Date.parse(from)) / 1000);
}

const ENDED = new Set(['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout']);
const TONES = {
  searching: 'busy',
  running: 'busy',
  succeeded: 'good',
  failed: 'bad',
  exhausted: 'bad',
  timeout: 'bad',
  held: 'warn',
};
export const isEnded = (state) => ENDED.has(state);
export const tone = (state) => TONES[state] ?? 'idle';

const OUTCOMES = {
  fit: 'fit',
  device_oom: 'out of memory',
  host_oom: 'out of host memory',
  shm: 'out of shared memory',
  disk_full: 'disk full',
  device_fault: 'device fault',
  user_error: 'error in the job',
};
export const outcome = (word) => OUTCOMES[word] ?? String(word);
export const outcomeTone = (word) => (word === 'fit' ? 'good' : word === 'device_oom' ? 'warn' : 'bad');

/**
 * Output of a job as plain text: terminal sequences and other control characters are taken out, and so are the marks that
 * turn the direction of writing, which could make a line look like another.
 */
export function clean(text) {
  return text.replace(ESCAPES, '').replace(CONTROLS, '').replace(TURNS, '\uFFFD');
}
const ESC = String.fromCharCode(27);
const ESCAPES = new RegExp(
  `${ESC}\\[[0-?]*[ -/]*[@-~]|${ESC}\\][^\\x07${ESC}]*(?:\\x07|${ESC}\\\\)|${ESC}[@-Z\\\\-_]`,
  'g',
);
const CONTROLS = /(?![\t\n\r])\p{Cc}/gu;
const TURNS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A word of a command as one would type it. */
export const quoted = (word) => (/^[\w@%+=:,./{}?-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
