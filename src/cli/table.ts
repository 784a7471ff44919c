import { type Paint, width } from './output.js';

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

/** Padded columns under a header, for people, awk and cut. What exceeds `room` is cut from the last columns with a `least`. */
export function table<Row>(rows: Row[], columns: Column<Row>[], paint: Paint, room = terminalWidth()): string {
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
  return [paint('bold', line(columns.map((column) => column.title))), ...cells.map(line)].join('\n');
}

/** A table of names and values. */
export function facts(pairs: [name: string, value: string | null | undefined][], indent = '  '): string {
  const shown = pairs.filter((pair): pair is [string, string] => pair[1] !== null && pair[1] !== undefined);
  const widest = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${indent}${name.padEnd(widest)}  ${value}`).join('\n');
}

function cut(text: string, widest: number | undefined): string {
  if (widest === undefined || width(text) <= widest) return text;
  return `${[...text].slice(0, widest - 1).join('')}…`;
}

/** Text of a job as one line of a terminal: of its control characters only colours are kept. */
export function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return text.replace(/[\u0000-\u001a\u001c-\u001f\u007f-\u009f]+|\u001b(?!\[[\d;]*m)/g, ' ');
}
