import { formatBytes } from '../common/size.js';
import type { MemoryReport } from '../contract/reports.js';
import type { Paint } from './output.js';
import { byteTicks, countTicks } from './ticks.js';

/** Dots of a braille cell, from the top left; the character is U+2800 plus their sum. */
const DOTS = [
  [0x01, 0x08],
  [0x02, 0x10],
  [0x04, 0x20],
  [0x40, 0x80],
] as const;
const ROWS = 9;

/** Peak memory by micro-batch as text: `●` fitted, `✗` ran out of memory, dots: prediction. Null: nothing was measured. */
export function curveText(memory: MemoryReport, budgetBytes: number, paint: Paint, width: number): string[] | null {
  const { fits, out_of_memory: failed, prediction } = memory.curve;
  if (fits.length === 0) return null;
  const right =
    1.04 * Math.max(...fits.map((fit) => fit.micro_batch), ...failed.filter((size) => size <= 2 * last(fits)));
  const top = 1.06 * Math.max(budgetBytes, ...fits.map((fit) => fit.peak_bytes));
  const column = (size: number): number => Math.min(width - 1, Math.floor((size / right) * width));
  const row = (bytes: number): number => ROWS - 1 - Math.min(ROWS - 1, Math.floor((bytes / top) * ROWS));

  const cells: string[][] = Array.from({ length: ROWS }, () => new Array<string>(width).fill(' '));
  const put = (at: number, x: number, text: string): void => {
    (cells[at] as string[])[x] = text;
  };
  if (prediction !== null)
    drawLine(cells, width, (part) => (prediction.base_bytes + prediction.bytes_per_sample * part * right) / top, paint);
  for (let x = 0; x < width; x += 1) {
    if (cells[row(budgetBytes)]?.[x] === ' ') put(row(budgetBytes), x, paint('yellow', '╌'));
  }
  for (const fit of fits) put(row(fit.peak_bytes), column(fit.micro_batch), paint('green', '●'));
  for (const size of failed) if (size <= right) put(row(budgetBytes), column(size), paint('red', '✗'));

  const labels = new Map(byteTicks(top, 4).map((bytes) => [row(bytes), formatBytes(bytes)]));
  labels.set(row(budgetBytes), formatBytes(budgetBytes));
  const margin = Math.max(...[...labels.values()].map((label) => label.length));
  const drawing = cells.map((line, at) => {
    const label = labels.get(at) ?? '';
    return `${label.padStart(margin)} ${paint('dim', label ? '┤' : '│')}${line.join('')}`.trimEnd();
  });
  const pad = ' '.repeat(margin + 1);
  const said = [
    `${paint('green', '●')} fitted`,
    ...(failed.length > 0 ? [`${paint('red', '✗')} out of memory`] : []),
    ...(prediction === null ? [] : [`${paint('blue', '⠒')} predicted`]),
    `${paint('yellow', '╌')} budget`,
  ];
  return [
    ...drawing,
    `${pad}${paint('dim', `└${'─'.repeat(width)}`)}`,
    pad + axis(right, column, width),
    pad + said.join('   '),
  ];
}

/** A line in braille dots. `height`: the relative height at a relative width. */
function drawLine(cells: string[][], width: number, height: (part: number) => number, paint: Paint): void {
  const dots = cells.map(() => new Array<number>(width).fill(0));
  for (let x = 0; x < 2 * width; x += 1) {
    const y = height((x + 0.5) / (2 * width));
    if (y < 0 || y >= 1) continue;
    const down = 4 * ROWS - 1 - Math.floor(y * 4 * ROWS);
    const line = dots[Math.floor(down / 4)] as number[];
    line[Math.floor(x / 2)] = (line[Math.floor(x / 2)] as number) | (DOTS[down % 4]?.[x % 2] as number);
  }
  dots.forEach((line, at) => {
    line.forEach((sum, x) => {
      if (sum > 0) (cells[at] as string[])[x] = paint('blue', String.fromCharCode(0x2800 + sum));
    });
  });
}

/** The sizes below the axis, without those that would touch the one before. */
function axis(right: number, column: (size: number) => number, width: number): string {
  let text = '';
  for (const size of countTicks(right, 5)) {
    const label = String(size);
    const centred = column(size) + 1 - Math.floor(label.length / 2);
    const start = Math.max(0, Math.min(centred, width + 1 - label.length));
    if (text === '' || start > text.length) text = text.padEnd(start) + label;
  }
  const name = 'micro-batch';
  return text.length + name.length + 2 <= width + 1 ? `${text.padEnd(width + 1 - name.length)}${name}` : text;
}

const last = (fits: { micro_batch: number }[]): number => fits.at(-1)?.micro_batch ?? 0;
