import { formatBytes } from '../../common/size.js';
import type { MemoryReport } from '../../contract/reports.js';
import { byteTicks, countTicks } from '../ticks.js';
import { element, label } from './svg.js';

interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Peak against micro-batch in a box: axes, budget, prediction, what fitted and what did not. */
export function curve(memory: MemoryReport, budgetBytes: number, box: Box): string[] {
  const { fits, out_of_memory: failed, prediction } = memory.curve;
  const most = Math.max(memory.micro_batch, ...fits.map((fit) => fit.micro_batch), ...failed);
  const right = 1.05 * most;
  const top = 1.1 * Math.max(budgetBytes, ...fits.map((fit) => fit.peak_bytes));
  const foot = box.top + box.height;
  const x = (size: number): number => box.left + (size / right) * box.width;
  const y = (bytes: number): number => foot - (bytes / top) * box.height;
  const across = (at: number, kind: string): string =>
    element('line', { class: kind, x1: box.left, x2: box.left + box.width, y1: at, y2: at });

  const grid = byteTicks(top, 5).flatMap((bytes) => [
    across(y(bytes), bytes === 0 ? 'axis' : 'grid'),
    label(formatBytes(bytes), { class: 'end', x: box.left - 8, y: y(bytes) + 4 }),
  ]);
  const sizes = countTicks(right, 8).flatMap((size) => [
    element('line', { class: 'axis', x1: x(size), x2: x(size), y1: foot, y2: foot + 5 }),
    label(String(size), { class: 'middle', x: x(size), y: foot + 19 }),
  ]);
  const named = [
    label('micro-batch (samples)', { class: 'middle', x: box.left + box.width / 2, y: foot + 38 }),
    label('peak memory', { class: 'middle', transform: `translate(18 ${box.top + box.height / 2}) rotate(-90)` }),
  ];
  const limit = [
    across(y(budgetBytes), 'budget'),
    label(`budget ${formatBytes(budgetBytes)}`, { class: 'budget', x: box.left + 6, y: y(budgetBytes) - 6 }),
  ];
  const line = prediction === null ? [] : [predicted(prediction, right, top, x, y)];
  const points = fits.map(({ micro_batch: size, peak_bytes: bytes }) =>
    element(
      'circle',
      {
        class: size === memory.micro_batch ? 'used' : 'fit',
        cx: x(size),
        cy: y(bytes),
        r: size === memory.micro_batch ? 6 : 4,
      },
      element('title', {}, `micro-batch ${size}: ${formatBytes(bytes)}`),
    ),
  );
  const crosses = failed.map((size) =>
    element(
      'path',
      { class: 'oom', d: `M${round(x(size) - 5)} ${round(y(budgetBytes) - 5)}l10 10m0 -10l-10 10` },
      element('title', {}, `micro-batch ${size}: out of memory`),
    ),
  );
  return [...grid, ...sizes, ...named, ...limit, ...line, ...points, ...crosses];
}

/** The prediction, from where it enters the chart to where it leaves it. */
function predicted(
  { base_bytes: base, bytes_per_sample: slope }: NonNullable<MemoryReport['curve']['prediction']>,
  right: number,
  top: number,
  x: (size: number) => number,
  y: (bytes: number) => number,
): string {
  const at = (bytes: number): number => (slope > 0 ? (bytes - base) / slope : base <= top ? right : 0);
  const from = Math.min(right, Math.max(0, slope > 0 ? at(0) : 0));
  const to = Math.max(from, Math.min(right, at(top)));
  const height = (size: number): number => Math.min(top, Math.max(0, base + slope * size));
  return element('line', { class: 'prediction', x1: x(from), y1: y(height(from)), x2: x(to), y2: y(height(to)) });
}

const round = (value: number): number => Number(value.toFixed(2));
