import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { curveText } from '../../src/cli/curve-text.js';
import { memoryBar } from '../../src/cli/memory-bar.js';
import { picture } from '../../src/cli/plot/picture.js';
import { byteTicks, countTicks } from '../../src/cli/ticks.js';
import type { FindBatchReport, MemoryReport } from '../../src/contract/reports.js';

const plain = (_style: unknown, text: string): string => text;
const bytes = fc.integer({ min: 0, max: 2 ** 36 });
const part = fc.option(bytes, { nil: null });
const size = fc.integer({ min: 1, max: 2 ** 20 });

/** Any document that a search could give, the odd ones with it: one size, no line, a peak above the budget. */
const memories: fc.Arbitrary<MemoryReport> = fc
  .record({
    parameters: part,
    gradients: part,
    optimizer_state: part,
    activations: part,
    activations_per_sample: part,
    allocator_slack: part,
    context: part,
    rest: fc.integer({ min: 1, max: 2 ** 36 }),
    fits: fc.uniqueArray(fc.record({ micro_batch: size, peak_bytes: bytes }), {
      minLength: 1,
      maxLength: 12,
      selector: (fit) => fit.micro_batch,
    }),
    out_of_memory: fc.array(size, { maxLength: 3 }),
    prediction: fc.option(
      fc.record({
        base_bytes: fc.integer({ min: -(2 ** 36), max: 2 ** 37 }),
        bytes_per_sample: fc.integer({ min: -100, max: 2 ** 30 }),
      }),
      { nil: null },
    ),
  })
  .map(({ fits, out_of_memory, prediction, ...parts }) => {
    const curve = { fits: fits.sort((a, b) => a.micro_batch - b.micro_batch), out_of_memory, prediction };
    const known = [
      parts.parameters,
      parts.gradients,
      parts.optimizer_state,
      parts.activations,
      parts.allocator_slack,
      parts.context,
    ];
    const peak_bytes = known.reduce<number>((sum, value) => sum + (value ?? 0), parts.rest);
    const micro_batch = curve.fits.at(-1)?.micro_batch as number;
    return { micro_batch, accumulation: 1, peak_bytes, peak_in: null, ...parts, curve };
  });

const budgets = fc.integer({ min: 1, max: 2 ** 38 });

describe('what a person sees of the memory', () => {
  it('is a bar as long as it should be, and a legend that adds up', () => {
    fc.assert(
      fc.property(memories, budgets, fc.integer({ min: 24, max: 64 }), (memory, budget, width) => {
        const [bar = '', ...legend] = memoryBar(memory, budget, plain, width);
        expect([...bar]).toHaveLength(width + 1);
        expect(bar.endsWith('│')).toBe(true);
        const shares = legend.map((line) => Number(/([\d.]+) %/.exec(line)?.[1]));
        expect(shares.reduce((a, b) => a + b)).toBeCloseTo(100, 0);
      }),
    );
  });

  it('is a chart that stays within its bounds and shows every size up to twice the largest that fitted', () => {
    fc.assert(
      fc.property(memories, budgets, fc.integer({ min: 18, max: 58 }), (memory, budget, width) => {
        const lines = curveText(memory, budget, plain, width) ?? [];
        const rows = lines.slice(0, 9);
        const margin = (rows[0] as string).search(/[┤│]/);
        for (const row of rows) {
          expect(row.search(/[┤│]/)).toBe(margin);
          expect([...row].length).toBeLessThanOrEqual(margin + 1 + width);
        }
        expect([...(lines.at(-2) ?? '')].length).toBeLessThanOrEqual(margin + 2 + width);
        expect(rows.join('')).toMatch(/●|✗/);
        expect(lines.join('')).not.toMatch(/NaN|Infinity|undefined/);
      }),
    );
  });

  it('is a picture without a number that is none, and text that cannot break out', () => {
    const report = {
      name: '<script>"&\u0007',
      device: { id: 'cuda:0', model: 'A&B', total_bytes: 1, budget_bytes: 1 },
    };
    fc.assert(
      fc.property(memories, budgets, (memory, budget_bytes) => {
        const device = { ...report.device, budget_bytes };
        const svg = picture({ ...report, device, config: null } as unknown as FindBatchReport, memory);
        expect(svg).not.toMatch(/NaN|Infinity|undefined|<script|&(?!amp;|lt;|gt;|quot;)/);
        expect(svg).not.toContain('\u0007');
        for (const [, width] of svg.matchAll(/ (?:width|height)="([^"]+)"/g))
          expect(Number(width)).toBeGreaterThanOrEqual(0);
      }),
    );
  });

  it('has axes with a few round numbers', () => {
    expect(countTicks(175, 5)).toEqual([0, 50, 100, 150]);
    expect(countTicks(3, 8)).toEqual([0, 1, 2, 3]);
    expect(byteTicks(66 * 2 ** 20, 5).map((tick) => tick / 2 ** 20)).toEqual([0, 16, 32, 48, 64]);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 45 }), fc.integer({ min: 2, max: 10 }), (most, count) => {
        for (const ticks of [countTicks(most, count), byteTicks(most, count)]) {
          expect(ticks.length).toBeLessThanOrEqual(count + 1);
          expect(ticks.at(-1)).toBeLessThanOrEqual(most);
        }
      }),
    );
  });
});
