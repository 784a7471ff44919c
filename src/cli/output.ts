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

export const width = (text: string): number => [...stripVTControlCharacters(text)].length;

/** Breaks long lines between words and keeps their indentation. `columns` undefined: a pipe, where nothing is broken. */
export function wrapped(text: string, columns: number | undefined): string {
  if (columns === undefined || columns < 20) return text;
  return text
    .split('\n')
    .map((line) => (width(line) <= columns ? line : broken(line, columns)))
    .join('\n');
}

function broken(line: string, columns: number, indent = `${/^ */.exec(line)?.[0] ?? ''}  `): string {
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

/** A closed stdout (`oomtune status | head`) ends the command silently; a closed stderr does not, as Redis may need a write. */
export function outliveClosedPipes(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw new OomtuneError(
      'OOMTUNE_OUTPUT_FAILED',
      `The output cannot be written: ${error.code ?? error.message}.`,
      'Is there room where stdout goes?',
      { cause: error },
    );
  });
  process.stderr.on('error', () => {}); // there is nowhere to say it
}

export const inspect = (value: unknown): string => formatWithOptions({ colors: false, depth: 4 }, '%O', value);
