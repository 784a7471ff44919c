import { beginning, type Paint, width, wrapped } from './output.js';

interface Column<Row> {
  title: string;
  value: (row: Row) => string;
  align?: 'left' | 'right';
  /** Characters that the column may take before it is cut; the last column is never padded. */
  widest?: number;
  /** Characters that it keeps where the line is longer than the terminal is wide. Absent: it is never cut for that. */
  least?: number;
}

/** The terminal's width; infinite in a pipe, where nothing is cut. */
const terminalWidth = (): number => (process.stdout.isTTY ? process.stdout.columns || 80 : Number.POSITIVE_INFINITY);

/** In less nothing can be laid out. */
const LEAST_ROOM = 20;

/**
 * Padded columns under a header, for people, awk and cut. What exceeds `room` is cut from the last columns with a `least`; columns
 * that have no place even so stand below their row, by name.
 */
export function table<Row>(rows: Row[], columns: Column<Row>[], paint: Paint, room = terminalWidth()): string {
  for (let inLine = columns.length; ; inLine -= 1) {
    const { lines, over } = laidOut(rows, columns.slice(0, inLine), paint, room);
    if (over > 0 && inLine > 1 && room >= LEAST_ROOM) continue;
    if (inLine === columns.length) return lines.join('\n');
    const below = rows.map((row) => remaining(row, columns.slice(inLine), room));
    const [header = '', ...body] = lines;
    return [header, ...body.flatMap((line, at) => [line, ...(below[at] ?? [])])].join('\n');
  }
}

/** The values of columns without a place, named by their titles; dashes say nothing. */
function remaining<Row>(row: Row, columns: Column<Row>[], room: number): string[] {
  const said = columns
    .map(({ title, value }) => ({ title: title.toLowerCase(), value: oneLine(value(row)) }))
    .filter(({ value }) => value !== '' && value !== '-')
    .map(({ title, value }) => (title === '' ? value : `${title}: ${value}`));
  return said.length === 0 ? [] : wrapped(`    ${said.join('; ')}`, room).split('\n');
}

/** `over`: by how many columns the longest line is longer than the room. */
function laidOut<Row>(
  rows: Row[],
  columns: Column<Row>[],
  paint: Paint,
  room: number,
): { lines: string[]; over: number } {
  const cells = rows.map((row) => columns.map((column) => cut(oneLine(column.value(row)), column.widest)));
  const widths = columns.map((column, at) =>
    Math.max(column.title.length, ...cells.map((row) => width(row[at] ?? ''))),
  );
  let over = widths.reduce((sum, one) => sum + one + 2, -2) - room;
  for (let at = columns.length - 1; at >= 0 && over > 0; at -= 1) {
    const { least, title } = columns[at] as Column<Row>;
    if (least === undefined) continue;
    const kept = Math.max(least, title.length, (widths[at] ?? 0) - over);
    over -= Math.max(0, (widths[at] ?? 0) - kept);
    widths[at] = Math.min(widths[at] ?? 0, kept);
    for (const row of cells) row[at] = cut(row[at] ?? '', widths[at]);
  }
  const line = (row: string[]): string =>
    row
      .map((cell, at) => {
        const space = ' '.repeat(Math.max(0, (widths[at] ?? 0) - width(cell)));
        if (columns[at]?.align === 'right') return space + cell;
        return at === row.length - 1 ? cell : cell + space;
      })
      .join('  ')
      .trimEnd();
  return { lines: [paint('bold', line(columns.map((column) => column.title))), ...cells.map(line)], over };
}

/** A table of names and values. */
export function facts(pairs: [name: string, value: string | null | undefined][], indent = '  '): string {
  const shown = pairs.filter((pair): pair is [string, string] => pair[1] !== null && pair[1] !== undefined);
  const widest = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${indent}${name.padEnd(widest)}  ${value}`).join('\n');
}

function cut(text: string, widest: number | undefined): string {
  if (widest === undefined || width(text) <= widest) return text;
  return `${beginning(text, widest - 1)}…`;
}

/** Text of a job as one line of a terminal: of its control characters only colours are kept. */
export function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return text.replace(/[\u0000-\u001a\u001c-\u001f\u007f-\u009f]+|\u001b(?!\[[\d;]*m)/g, ' ');
}
