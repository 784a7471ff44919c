import { describe, expect, it } from 'vitest';
import { Growth } from '../../src/worker/run/growth.js';

function growthOf(bytes: number[]) {
  const growth = new Growth();
  for (const [index, value] of bytes.entries()) growth.add({ t: 'step', n: index + 1, resident_bytes: value });
  return growth.perStep();
}

describe('growth of memory from step to step', () => {
  it('tells a leak with its rise per step', () => {
    expect(growthOf([5, 50, 100, 120, 140, 160, 180, 200])).toEqual({ bytesPerStep: 20, steps: 5 });
  });

  it('tells one through the ups and downs of single steps', () => {
    const noisy = Array.from({ length: 40 }, (_, step) => 100 + 10 * step + (step % 3 === 0 ? -25 : 15));
    const growth = growthOf(noisy);
    expect(growth?.bytesPerStep).toBeGreaterThan(8);
    expect(growth?.bytesPerStep).toBeLessThan(12);
  });

  it('keeps its judgement over a run of many steps', () => {
    expect(growthOf(Array.from({ length: 5000 }, (_, step) => 1000 + step))?.bytesPerStep).toBe(1);
    expect(growthOf(Array.from({ length: 5000 }, () => 1000))).toBeNull();
  });

  it.each([
    ['a cache that fills and is full', [5, 50, 100, 140, 180, 220, 220, 220, 220, 220, 220]],
    ['a flat loop', [5, 50, 100, 100, 100, 100, 100, 100]],
    ['state that appears at the second step', [5, 100, 100, 100, 100, 100, 100, 100]],
    ['memory that comes and goes', [5, 50, 100, 160, 100, 160, 100, 160]],
    ['a rise too small to matter', [5, 50, 1000, 1001, 1002, 1003, 1004, 1005]],
    ['too few steps to tell', [5, 50, 100, 200, 300]],
  ])('is silent about %s', (_, bytes) => {
    expect(growthOf(bytes)).toBeNull();
  });
});
