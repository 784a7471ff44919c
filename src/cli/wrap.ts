import { stripVTControlCharacters } from 'node:util';

const width = (text: string): number => [...stripVTControlCharacters(text)].length;

/**
 * Lines that are longer than the terminal is wide are broken between words, and go on under their own beginning. A word that is
 * longer than a line (a path) stays whole. `columns` undefined: a pipe, where nothing needs to be broken.
 */
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

/** A command over several lines that a shell reads as one. */
export function continued(command: string, indent: string, columns: number | undefined): string {
  if (columns === undefined || width(indent) + width(command) <= columns) return indent + command;
  return broken(indent + command, columns - 2, ' '.repeat(width(indent) + 2)).replaceAll('\n', ' \\\n');
}
