import { formatBytes } from '../../common/size.js';
import type { FindBatchReport, MemoryReport } from '../../contract/reports.js';
import { rungName } from '../../contract/rung.js';
import { partsOf } from '../../worker/memory/memory-parts.js';
import { configWords } from '../words.js';
import { curve } from './curve.js';
import { STYLE } from './style.js';
import { element, escapeText, label } from './svg.js';

const WIDTH = 800;
const LEFT = 100;
const RIGHT = WIDTH - 30;
const CURVE = { left: LEFT, top: 98, width: RIGHT - LEFT, height: 270 };
const BAR_TOP = 466;
const LEGEND_TOP = BAR_TOP + 58;
const ROW = 22;

/** A search's result as one SVG document that needs nothing else: the curve of the peak, and what fills the memory. */
export function picture(report: FindBatchReport, memory: MemoryReport): string {
  const { name, device, config } = report;
  const rung = config === null ? '' : `, ${rungName(config)}`;
  const heading = shortened(`${name} on ${device.model}`);
  const parts = partsOf(memory);
  const height = LEGEND_TOP + Math.ceil((parts.length + 1) / 2) * ROW + 10;
  const told = config === null ? `micro-batch ${memory.micro_batch}` : configWords(config);
  const words = `Peak memory against micro-batch and what fills ${formatBytes(device.budget_bytes)} at ${told}.`;
  const body = [
    element('rect', { class: 'ground', width: WIDTH, height }),
    label(heading, { class: 'title', x: 24, y: 32 }),
    label(`${told}${rung}: ${formatBytes(memory.peak_bytes)} of ${formatBytes(device.budget_bytes)}`, { x: 24, y: 52 }),
    ...keyLine(memory),
    ...curve(memory, device.budget_bytes, CURVE),
    label(`What fills the memory at micro-batch ${memory.micro_batch}`, { class: 'head', x: 24, y: BAR_TOP - 14 }),
    ...bar(memory, device.budget_bytes),
  ];
  const root = {
    xmlns: 'http://www.w3.org/2000/svg',
    viewBox: `0 0 ${WIDTH} ${height}`,
    width: WIDTH,
    height,
    role: 'img',
    'aria-labelledby': 'title words',
  };
  return `${element(
    'svg',
    root,
    `<title id="title">${escapeText(heading)}</title>\n`,
    `<desc id="words">${escapeText(words)}</desc>\n`,
    `<style>${STYLE}</style>\n`,
    body.join('\n'),
    '\n',
  )}\n`;
}

/** What the marks of the curve mean, on the right above it. */
function keyLine({ curve: { out_of_memory: failed, prediction } }: MemoryReport): string[] {
  const y = 76;
  const key: string[] = [];
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

function bar(memory: MemoryReport, budgetBytes: number): string[] {
  const whole = Math.max(budgetBytes, memory.peak_bytes);
  const left = 24;
  const width = RIGHT - left;
  const drawn: string[] = [element('rect', { class: 'free', x: left, y: BAR_TOP, width, height: 34 })];
  let upTo = 0;
  const entries = partsOf(memory).map(({ part, name, bytes, remark }) => {
    const size = (bytes / whole) * width;
    const words = `${name} ${formatBytes(bytes)}, ${percent(bytes, whole)}${remark ? ` (${remark})` : ''}`;
    drawn.push(
      element(
        'rect',
        { x: left + (upTo / whole) * width, y: BAR_TOP, width: size, height: 34, class: part },
        element('title', {}, escapeText(words)),
      ),
    );
    upTo += bytes;
    return { kind: part as string, words };
  });
  const free = {
    kind: 'free',
    words: `free ${formatBytes(whole - upTo)}, ${percent(whole - upTo, whole)}`,
  };
  const legend = [...entries, free].flatMap(({ kind, words }, index) => {
    const x = left + (index % 2) * (width / 2);
    const y = LEGEND_TOP + Math.floor(index / 2) * ROW;
    return [element('rect', { x, y: y - 10, width: 12, height: 12, class: kind }), label(words, { x: x + 20, y })];
  });
  return [...drawn, ...legend];
}

/** What a line of the title's size has room for. */
const shortened = (text: string): string => (text.length > 90 ? `${text.slice(0, 89)}…` : text);

const percent = (bytes: number, whole: number): string => `${((100 * bytes) / whole).toFixed(1)} %`;
