import { formatBytes } from '../../common/size.js';
import type { FindBatchReport, MemoryReport } from '../../contract/reports.js';
import { rungName } from '../../contract/rung.js';
import { partsOf } from '../../worker/memory/memory-report.js';
import { byteTicks, countTicks } from '../ticks.js';
import { configWords } from '../words.js';
import { element, escapeText, label, type Shape, toSvg } from './shape.js';
import { STYLE } from './style.js';

const WIDTH = 800;
const LEFT = 100;
const RIGHT = WIDTH - 30;
const CURVE = { left: LEFT, top: 98, width: RIGHT - LEFT, height: 270 };
const BAR_TOP = 466;
const LEGEND_TOP = BAR_TOP + 58;
const ROW = 22;

/** What both forms of the picture show. */
export interface Scene {
  width: number;
  height: number;
  heading: string;
  words: string;
  shapes: Shape[];
}

/** A search's result: the curve of the peaks, and the parts of the memory. */
export function scene(report: FindBatchReport, memory: MemoryReport): Scene {
  const { name, device, config } = report;
  const rung = config === null ? '' : `, ${rungName(config)}`;
  const heading = shortened(`${name} on ${device.model}`);
  const parts = partsOf(memory);
  const height = LEGEND_TOP + Math.ceil((parts.length + 1) / 2) * ROW + 10;
  const setting = config === null ? `micro-batch ${memory.micro_batch}` : configWords(config);
  const words = `Peak memory against micro-batch and what fills ${formatBytes(device.budget_bytes)} at ${setting}.`;
  const shapes = [
    element('rect', { class: 'ground', width: WIDTH, height }),
    label(heading, { class: 'title', x: 24, y: 32 }),
    label(`${setting}${rung}: ${formatBytes(memory.peak_bytes)} of ${formatBytes(device.budget_bytes)}`, {
      x: 24,
      y: 52,
    }),
    ...keyLine(memory),
    ...curve(memory, device.budget_bytes, CURVE),
    label(`What fills the memory at micro-batch ${memory.micro_batch}`, { class: 'head', x: 24, y: BAR_TOP - 14 }),
    ...bar(memory, device.budget_bytes),
  ];
  return { width: WIDTH, height, heading, words, shapes };
}

/** As a self-contained SVG. */
export function picture(report: FindBatchReport, memory: MemoryReport): string {
  const { width, height, heading, words, shapes } = scene(report, memory);
  const root = Object.entries({
    xmlns: 'http://www.w3.org/2000/svg',
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: 'img',
    'aria-labelledby': 'title words',
  }).map(([key, value]) => ` ${key}="${value}"`);
  return [
    `<svg${root.join('')}><title id="title">${escapeText(heading)}</title>`,
    `<desc id="words">${escapeText(words)}</desc>`,
    `<style>${STYLE}</style>`,
    ...shapes.map(toSvg),
    '</svg>\n',
  ].join('\n');
}

/** The legend of the curve, above it on the right. */
function keyLine({ curve: { out_of_memory: failed, prediction } }: MemoryReport): Shape[] {
  const y = 76;
  const key: Shape[] = [];
  let x = RIGHT - 90;
  key.push(element('circle', { class: 'used', cx: x, cy: y - 4, r: 6 }), label('recommended', { x: x + 12, y }));
  x -= 68;
  key.push(element('circle', { class: 'fit', cx: x, cy: y - 4, r: 4 }), label('fitted', { x: x + 10, y }));
  if (prediction !== null) {
    x -= 98;
    key.push(element('line', { class: 'prediction', x1: x - 8, x2: x + 16, y1: y - 4, y2: y - 4 }));
    key.push(label('prediction', { x: x + 22, y }));
  }
  if (failed.length > 0) {
    x -= 120;
    key.push(element('path', { class: 'oom', d: `M${x - 5} ${y - 9}l10 10m0 -10l-10 10` }));
    key.push(label('out of memory', { x: x + 12, y }));
  }
  return key;
}

function bar(memory: MemoryReport, budgetBytes: number): Shape[] {
  const whole = Math.max(budgetBytes, memory.peak_bytes);
  const left = 24;
  const width = RIGHT - left;
  const drawn: Shape[] = [element('rect', { class: 'free', x: left, y: BAR_TOP, width, height: 34 })];
  let upTo = 0;
  const entries = partsOf(memory).map(({ part, name, bytes, remark }) => {
    const size = (bytes / whole) * width;
    const words = `${name} ${formatBytes(bytes)}, ${percent(bytes, whole)}${remark ? ` (${remark})` : ''}`;
    const box = { x: left + (upTo / whole) * width, y: BAR_TOP, width: size, height: 34, class: part };
    drawn.push(element('rect', box, element('title', {}, words)));
    upTo += bytes;
    return { kind: part as string, words };
  });
  const free = { kind: 'free', words: `free ${formatBytes(whole - upTo)}, ${percent(whole - upTo, whole)}` };
  const legend = [...entries, free].flatMap(({ kind, words }, index) => {
    const x = left + (index % 2) * (width / 2);
    const y = LEGEND_TOP + Math.floor(index / 2) * ROW;
    return [element('rect', { x, y: y - 10, width: 12, height: 12, class: kind }), label(words, { x: x + 20, y })];
  });
  return [...drawn, ...legend];
}

const shortened = (text: string): string => (text.length > 90 ? `${text.slice(0, 89)}…` : text);

const percent = (bytes: number, whole: number): string => `${((100 * bytes) / whole).toFixed(1)} %`;

interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** The chart of peaks by micro-batch: axes, budget, prediction, fits and failures. */
function curve(memory: MemoryReport, budgetBytes: number, box: Box): Shape[] {
  const { fits, out_of_memory: failed, prediction } = memory.curve;
  const most = Math.max(memory.micro_batch, ...fits.map((fit) => fit.micro_batch), ...failed);
  const right = 1.05 * most;
  const top = 1.1 * Math.max(budgetBytes, ...fits.map((fit) => fit.peak_bytes));
  const foot = box.top + box.height;
  const x = (size: number): number => box.left + (size / right) * box.width;
  const y = (bytes: number): number => foot - (bytes / top) * box.height;
  const across = (at: number, kind: string): Shape =>
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
  const points = fits.map(({ micro_batch: size, peak_bytes: bytes }) => {
    const used = size === memory.micro_batch;
    const title = element('title', {}, `micro-batch ${size}: ${formatBytes(bytes)}`);
    return element('circle', { class: used ? 'used' : 'fit', cx: x(size), cy: y(bytes), r: used ? 6 : 4 }, title);
  });
  const crosses = failed.map((size) =>
    element(
      'path',
      { class: 'oom', d: `M${round(x(size) - 5)} ${round(y(budgetBytes) - 5)}l10 10m0 -10l-10 10` },
      element('title', {}, `micro-batch ${size}: out of memory`),
    ),
  );
  return [...grid, ...sizes, ...named, ...limit, ...line, ...points, ...crosses];
}

/** The visible part of the prediction. */
function predicted(
  { base_bytes: base, bytes_per_sample: slope }: NonNullable<MemoryReport['curve']['prediction']>,
  right: number,
  top: number,
  x: (size: number) => number,
  y: (bytes: number) => number,
): Shape {
  const at = (bytes: number): number => (slope > 0 ? (bytes - base) / slope : base <= top ? right : 0);
  const from = Math.min(right, Math.max(0, slope > 0 ? at(0) : 0));
  const to = Math.max(from, Math.min(right, at(top)));
  const height = (size: number): number => Math.min(top, Math.max(0, base + slope * size));
  return element('line', { class: 'prediction', x1: x(from), y1: y(height(from)), x2: x(to), y2: y(height(to)) });
}

const round = (value: number): number => Number(value.toFixed(2));
