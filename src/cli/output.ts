import { formatWithOptions, stripVTControlCharacters, styleText } from 'node:util';
import { OomtuneError } from '../common/errors.js';
import type { ErrorDocument } from '../contract/failure.js';
import type { VerbDocuments } from '../contract/verbs.js';

/** ASCII for signs that a terminal without UTF-8 cannot show. */
const SIGNS: Record<string, string> = {
  ...{
    '✓': '+',
    '✗': 'x',
    '×': 'x',
    '…': '...',
    '→': '->',
    '←': '<-',
    '–': '-',
    '—': '-',
    '’': "'",
    '‘': "'",
    '“': '"',
    '”': '"',
    '·': '.',
  },
  ...{ '█': '#', '▓': '=', '▒': ':', '░': '.', '▚': '%', '│': '|', '┤': '|', '└': '+', '─': '-', '╌': '-', '●': 'o' },
};

/** Whether the locale is limited to ASCII (LC_ALL=C); an unset one is not. */
export function asciiOnly(env: NodeJS.ProcessEnv = process.env): boolean {
  const locale = env.LC_ALL || env.LC_CTYPE || env.LANG;
  return locale !== undefined && locale !== '' && !/utf-?8/i.test(locale);
}

/** The text in ASCII; other letters become question marks. */
export function ascii(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: everything beyond ASCII
  return text.replace(/[^\x00-\x7f]/gu, (sign) => SIGNS[sign] ?? other(sign));
}

function other(sign: string): string {
  const code = sign.codePointAt(0) as number;
  if (code === 0x2800) return ' ';
  if (code > 0x2800 && code <= 0x28ff) return '.'; // dots of a curve
  if (code >= 0x2581 && code <= 0x2588) return '_.:-=+*#'[code - 0x2581] as string; // bars of a history
  return sign.normalize('NFKD').replace(/[^\x20-\x7e]/g, '') || '?';
}

/** Letters that take two columns: those of East Asia, and most pictures. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1faff}\u{20000}-\u{3fffd}]/u;
/** Marks that are drawn onto the letter before them. */
const ONTO_THE_LAST = /[\p{Mn}\p{Me}\u200b-\u200d\u2060\ufeff]/u;

/** Columns that a text takes in a terminal. */
export function width(text: string): number {
  let columns = 0;
  for (const sign of stripVTControlCharacters(text))
    columns += sign < '\u0300' ? 1 : ONTO_THE_LAST.test(sign) ? 0 : WIDE.test(sign) ? 2 : 1;
  return columns;
}

/** The longest beginning of a text without colours that takes at most so many columns. */
export function beginning(text: string, columns: number): string {
  let taken = 0;
  let end = 0;
  for (const sign of text) {
    taken += width(sign);
    if (taken > columns) break;
    end += sign.length;
  }
  return text.slice(0, end);
}

/** Breaks long lines between words and keeps their indentation. `columns` undefined: a pipe, where nothing is broken. */
export function wrapped(text: string, columns: number | undefined): string {
  if (columns === undefined || columns < 20) return text;
  return text
    .split('\n')
    .map((line) => (width(line) <= columns ? line : broken(line, columns)))
    .join('\n');
}

/** Where a line goes on: under its second column where it has a narrow first one (a name and its value), else a little further in. */
function indentOf(line: string, columns: number): string {
  const first = /^ *\S+(?: \S+)* {2,}(?=\S)/.exec(stripVTControlCharacters(line))?.[0] ?? '';
  if (first !== '' && width(first) <= columns / 2) return ' '.repeat(width(first));
  return `${/^ */.exec(line)?.[0] ?? ''}  `;
}

function broken(line: string, columns: number, indent = indentOf(line, columns)): string {
  const lines: string[] = [];
  let now = '';
  for (const piece of line.match(/ *[^ ]+/g) ?? []) {
    if (now.trim() !== '' && width(now) + width(piece) > columns) {
      lines.push(now);
      now = indent + piece.trimStart();
    } else now += piece;
  }
  return [...lines, now].join('\n');
}

/** A command broken into lines that a shell reads as one. */
export function continued(command: string, indent: string, columns: number | undefined): string {
  if (columns === undefined || width(indent) + width(command) <= columns) return indent + command;
  return broken(indent + command, columns - 2, ' '.repeat(width(indent) + 2)).replaceAll('\n', ' \\\n');
}

/** stdout for data, stderr for messages. */
export interface Output {
  readonly json: boolean;
  /** Colours and glyphs for stdout and for stderr. */
  readonly paint: Paint;
  readonly paintErr: Paint;
  /** Writes data for a person; adds the newline. */
  data(text: string): void;
  /** The same, to the letter: for words that a shell is to read. */
  exact(text: string): void;
  /** Writes the one JSON document of a `--json` call. */
  document<D extends keyof VerbDocuments>(verb: D, value: VerbDocuments[D]): void;
  /** The same for an error. */
  failure(error: ErrorDocument): void;
  /** A line for a person, on stderr. */
  note(text: string): void;
}

type Style = Parameters<typeof styleText>[0];
export type Paint = (style: Style, text: string) => string;

/** Whether a stream gets colours: a terminal that is not dumb, without NO_COLOR (no-color.org); FORCE_COLOR overrules both. */
export function coloured(stream: { isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): boolean {
  if (env.FORCE_COLOR && env.FORCE_COLOR !== '0') return true;
  if (env.NO_COLOR || env.FORCE_COLOR === '0') return false;
  return Boolean(stream.isTTY) && env.TERM !== 'dumb';
}

export function paintFor(stream: { isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): Paint {
  if (!coloured(stream, env)) return (_style, text) => text;
  // newer Node would decide by itself, from stdout and the environment; we decide for each stream
  return (style, text) => styleText(style, text, { validateStream: false } as never);
}

export function createOutput(json: boolean): Output {
  return {
    json,
    paint: paintFor(process.stdout),
    paintErr: paintFor(process.stderr),
    data: (text) => process.stdout.write(ended(shown(text, process.stdout))),
    exact: (text) => process.stdout.write(ended(text)),
    document: (_verb, value) => writeJson(value),
    failure: writeJson,
    note: (text) => process.stderr.write(`${shown(text, process.stderr)}\n`),
  };
}

/** JSON leaves control characters beyond ASCII unescaped, which terminals obey. */
function writeJson(value: unknown): void {
  const text = JSON.stringify(value, null, process.stdout.isTTY ? 2 : undefined);
  const escaped = (character: string): string => `\\u00${character.charCodeAt(0).toString(16)}`;
  process.stdout.write(`${text.replace(/[\u007f-\u009f]/g, escaped)}\n`);
}

/** Text for a person: without control characters, wrapped, and only with signs of the locale. */
export function shown(text: string, stream: { isTTY?: boolean; columns?: number }): string {
  const plain = asciiOnly() ? ascii(printable(text)) : printable(text);
  return wrapped(plain, stream.isTTY ? stream.columns || 80 : undefined);
}

const ended = (text: string): string => (text.endsWith('\n') ? text : `${text}\n`);

/** Records and logs may hold anything: keeps only line ends, tabs and colours of their control characters. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return text.replace(/[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f]+|\u001b(?!\[[\d;]*m)/g, ' ');
}

/** Between the failure of writes to a terminal that is gone, and its signal. */
const HANGUP_MS = 500;

/**
 * A closed stdout (`oomtune status | head`) ends the command silently; a closed stderr does not, as Redis may need a write. `ending`:
 * whether a signal has told the command to end, as that of a closed terminal does, whose writes fail beside it.
 */
export function outliveClosedPipes(ending: () => boolean): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    const failed = (): never => {
      throw new OomtuneError(
        'OOMTUNE_OUTPUT_FAILED',
        `The output cannot be written: ${error.code ?? error.message}.`,
        'Is there room where stdout goes?',
        { cause: error },
      );
    };
    if (error.code !== 'EIO') failed();
    setTimeout(() => ending() || failed(), HANGUP_MS);
  });
  process.stderr.on('error', () => {}); // there is nowhere to say it
}

export const inspect = (value: unknown): string => formatWithOptions({ colors: false, depth: 4 }, '%O', value);
