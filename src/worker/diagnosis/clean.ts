/** Takes a line out of its wrappings: terminal codes, containers' envelopes. */

const LONGEST_ENVELOPE = 32 << 10;

/** Removes escape sequences (also those that lost their escape byte on the way), NULs and other control characters. */
export function stripCodes(raw: string): string {
  let text = raw;
  if (hasControls(raw)) {
    text = '';
    let start = 0;
    for (let i = 0; i < raw.length; i++) {
      const code = raw.charCodeAt(i);
      if (code >= 32 && code !== 127 && code !== 0x9b) continue;
      if (code === 9) continue;
      text += raw.slice(start, i);
      if (code === 27 || code === 0x9b) i = endOfEscape(raw, i);
      start = i + 1;
    }
    text += raw.slice(start);
  }
  return text.includes('m') && text.includes('[') ? text.replace(ORPHANED_COLOUR, '') : text;
}

/** `[1;31m` with what loggers write for the escape byte, or with nothing. Every part is bounded. */
const ORPHANED_COLOUR = /(?:(?:\^\[|#033|\\x1[bB]|\\u001[bB]|\\033|\\e)\[|\[(?=\d))\d{0,3}(?:;\d{1,3}){0,4}m/g;

function hasControls(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if ((code < 32 && code !== 9) || code === 127 || code === 0x9b) return true;
  }
  return false;
}

/** Index of the last character of the escape sequence that begins at `at`. */
function endOfEscape(text: string, at: number): number {
  const kind = text.charCodeAt(at) === 0x9b ? '[' : text[at + 1];
  const body = text.charCodeAt(at) === 0x9b ? at + 1 : at + 2;
  const limit = Math.min(text.length, body + 64);
  if (kind === '[') {
    for (let i = body; i < limit; i++) {
      const code = text.charCodeAt(i);
      if (code >= 0x40 && code <= 0x7e) return i;
      if (code < 0x20) return i - 1;
    }
    return Math.min(text.length - 1, body - 1);
  }
  if (kind === ']') {
    // A title or hyperlink, ended by BEL or ESC \.
    for (let i = body; i < Math.min(text.length, body + 2048); i++) {
      if (text.charCodeAt(i) === 7) return i;
      if (text.charCodeAt(i) === 27) return text[i + 1] === '\\' ? i + 1 : i - 1;
    }
    return body - 1;
  }
  return kind === undefined ? at : body - 1;
}

/** tqdm's bar. Every part is bounded. */
const BAR = /\d{1,3}%\|[^|]{0,300}\| {0,12}[\d.,kMGT]{1,16}\/[\d.,kMGT?]{1,16} \[[^\]]{0,200}\]/;

/** A progress bar has no line feed: what is printed next stands right behind it. Gives the bar and that, or the line. */
export function behindBar(text: string): string[] {
  const bar = text.includes('%|') ? BAR.exec(text) : null;
  if (!bar) return [text];
  const end = bar.index + bar[0].length;
  const rest = text.slice(end);
  return rest.trim() === '' || BAR.test(rest) ? [text] : [text.slice(0, end), rest];
}

const MESSAGE_KEYS = ['log', 'message', 'msg', 'MESSAGE', 'text', 'event', 'textPayload', 'body'];
const TRACE_KEYS = ['exc_info', 'exception', 'stack_trace', 'stacktrace', 'traceback', 'exc_text', 'error'];

/** A traceback whose lines stand in one. */
const QUOTED = 'Traceback (most recent call last):\\n';

/** The text inside a line of JSON (Docker, Kubernetes, structured loggers), with its own lines; null: no such line. */
export function openEnvelope(text: string): string[] | null {
  const quoted = text.length > LONGEST_ENVELOPE ? -1 : text.indexOf(QUOTED);
  // A client prints what its server or worker raised: `error='Traceback (most recent call last):\\n  File …'`.
  if (quoted >= 0 && !text.startsWith('{"')) return [text.slice(0, quoted), ...text.slice(quoted).split('\\n')];
  const start = text.indexOf('{"');
  if (start < 0 || start > 64 || text.length > LONGEST_ENVELOPE) return null;
  const body = text.slice(start).trimEnd();
  if (!body.endsWith('}')) return null;
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return null;
  }
  if (typeof parsed !== 'object' || parsed === null) return null;
  const record = parsed as Record<string, unknown>;
  const inner = [...MESSAGE_KEYS.slice(), ...TRACE_KEYS]
    .map((key) => record[key])
    .filter((value): value is string => typeof value === 'string' && value !== '');
  if (inner.length === 0) return null;
  const level = record.level ?? record.levelname ?? record.severity;
  const prefix = typeof level === 'string' && !Object.hasOwn(record, 'log') ? `${level.toUpperCase()}: ` : '';
  const traced = inner.some((value) => value.includes('Traceback (most recent'));
  return inner
    .join('\n')
    .split('\n')
    .filter((line, i, all) => line !== '' || i < all.length - 1)
    .map((line, i) => (i === 0 && !traced ? prefix + line : line));
}
