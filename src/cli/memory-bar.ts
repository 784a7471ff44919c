import { formatBytes } from '../common/size.js';
import type { MemoryBreakdown } from '../contract/measurement.js';
import { type Part, partsOf } from '../worker/memory/memory-report.js';
import type { Paint } from './output.js';

/** Different glyphs, so that they can be told apart without colours. */
const LOOKS: Record<Part, { glyph: string; style: Parameters<Paint>[0] }> = {
  parameters: { glyph: '█', style: 'blue' },
  gradients: { glyph: '▓', style: 'cyan' },
  optimizer_state: { glyph: '▒', style: 'magenta' },
  activations: { glyph: '▚', style: 'green' },
  allocator_slack: { glyph: '░', style: 'yellow' },
  context: { glyph: '▤', style: 'gray' },
  rest: { glyph: '·', style: 'gray' },
};

/** Columns for a drawing, beside its labels. */
export const drawingWidth = (): number => Math.max(24, Math.min(64, (process.stdout.columns || 80) - 14));

/** A bar as long as the budget with the parts of the peak, and a legend with figures. */
export function memoryBar(memory: MemoryBreakdown, budgetBytes: number, paint: Paint, width: number): string[] {
  const parts = partsOf(memory);
  const whole = Math.max(budgetBytes, memory.peak_bytes);
  const cells = (bytes: number): number => Math.round((bytes / whole) * width);
  let upTo = 0;
  let drawn = 0;
  const stretches = parts.map(({ part, bytes }) => {
    upTo += bytes;
    const length = cells(upTo) - drawn;
    drawn += length;
    return paint(LOOKS[part].style, LOOKS[part].glyph.repeat(length));
  });
  const names = Math.max(4, ...parts.map(({ name }) => name.length));
  const figures = Math.max(...[...parts.map(({ bytes }) => bytes), whole - upTo].map((b) => formatBytes(b).length));
  const line = (swatch: string, name: string, bytes: number, remark = ''): string => {
    const share = `${((100 * bytes) / whole).toFixed(1)} %`.padStart(7);
    return `${swatch} ${name.padEnd(names)}  ${formatBytes(bytes).padStart(figures)} ${share}${remark ? `  (${remark})` : ''}`;
  };
  return [
    `${stretches.join('')}${' '.repeat(Math.max(0, width - drawn))}${paint('dim', '│')}`,
    ...parts.map(({ part, name, bytes, remark }) =>
      line(paint(LOOKS[part].style, LOOKS[part].glyph), name, bytes, remark),
    ),
    line(' ', 'free', whole - upTo),
  ];
}
