import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { unseenEnd } from '../../src/contract/launch.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { needOf } from '../../src/worker/search/observe.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const MIB = 2 ** 20;
const BUDGET = 400;
const folder = mkdtempSync(join(tmpdir(), 'oomtune-no-torch-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** An interpreter that has no torch, as people have who train with JAX. */
function pythonWithoutTorch(): string {
  execFileSync(pythonWithTorch(), ['-m', 'venv', '--without-pip', folder]);
  return join(folder, 'bin', 'python3');
}

const search = (python: string, ...more: string[]) => {
  const cwd = join(FIXTURES, 'jax_stand_in');
  const command = [python, 'train.py', '--batch', '{micro_batch}', ...more];
  return workbench('find-batch', command, { budget: `${BUDGET}MiB`, cwd });
};

describe('a program of JAX, whose memory pool is taken whole', () => {
  for (const [name, python] of [
    ['without torch', pythonWithoutTorch],
    ['with torch beside it', pythonWithTorch],
  ] as const)
    it(`is measured by what it used of the pool (an interpreter ${name})`, async () => {
      const bench = search(python());
      const report = await findBatch(bench.request, bench.deps);
      expect(report.status, JSON.stringify(report.failure)).toBe('found');
      // 300 MiB of pool, less the weights: what lies outside of it has room in the rest of the budget.
      expect(report.max_micro_batch).toBeGreaterThanOrEqual(285);
      expect(report.max_micro_batch).toBeLessThanOrEqual(290);
      expect(report.launches).toBeLessThanOrEqual(5);
      const peaks = report.probes.filter(({ outcome }) => outcome === 'fit').map((probe) => probe.peak_bytes as number);
      expect(Math.max(...peaks) - Math.min(...peaks)).toBeGreaterThan(200 * MIB);
      expect(report.notes.join(' ')).toMatch(/JAX's memory pool lets the program take \d+ MiB of 400 MiB/);
      const [, most] = report.notes.join(' ').match(/lets the program take (\d+) MiB/) ?? [];
      // In another process XLA may take up to a hundredth more.
      const found = report.probes.find(({ micro_batch: size }) => size === report.max_micro_batch);
      expect(found?.peak_bytes).toBeLessThanOrEqual(0.99 * (Number(most) + 0.5) * MIB);
      await bench.noneLeft();
    });

  it('takes no device only to ask it for figures', async () => {
    const bench = search(pythonWithTorch(), '--idle');
    const report = await findBatch(bench.request, bench.deps);
    for (const { peak_bytes: peak } of report.probes) expect(peak).toBeLessThan(100 * MIB);
  });
});

describe('the need of a launch', () => {
  const exit = (peak: number) => ({
    ...unseenEnd('job', '2026-01-01T00:00:00Z'),
    ledger: {
      devices: [
        { device: 'cuda:0', live_bytes: 0, peak_bytes: peak, overhead_bytes: 0, budget_bytes: null, measured_by: null },
      ],
      refused: 0,
      refusals: [],
      blind: false,
    },
  });

  it('is what lies outside of the pool, and what was used of it', () => {
    const pool = { t: 'xla_pool' as const, peak_bytes: 2000, pool_bytes: 6000, limit_bytes: 6000 };
    expect(needOf(exit(6500), pool)).toEqual({ bytes: 2500, most: 6500 });
    // A pool that grows with its use may become larger than it is.
    expect(needOf(exit(3500), { ...pool, pool_bytes: 3000 })).toEqual({ bytes: 2500, most: 6500 });
  });

  it('is the peak of the ledger where that does not hold the pool, or where there is none', () => {
    const pool = { t: 'xla_pool' as const, peak_bytes: 2000, pool_bytes: 6000, limit_bytes: 6000 };
    expect(needOf(exit(500), pool)).toEqual({ bytes: 500, most: null });
    expect(needOf(exit(500), null)).toEqual({ bytes: 500, most: null });
  });
});
