import { describe, expect, it } from 'vitest';
import { Growth } from '../../src/worker/growth.js';

function growthOf(bytes: number[]) {
  const growth = new Growth();
  for (const [index, value] of bytes.entries()) growth.add({ t: 'step', n: index + 1, resident_bytes: value });
  return growth.perStep();
}

describe('growth of memory from step to step', () => {
  it('tells a leak with its rise per step', () => {
    expect(growthOf([5, 50, 100, 120, 140, 160, 180, 200])).toEqual({ bytesPerStep: 20, steps: 5 });
  });

  it.each([
    ['a flat loop', [5, 50, 100, 100, 100, 100, 100, 100]],
    ['state that appears at the second step', [5, 100, 100, 100, 100, 100, 100, 100]],
    ['memory that comes and goes', [5, 50, 100, 160, 100, 160, 100, 160]],
    ['a rise too small to matter', [5, 50, 1000, 1001, 1002, 1003, 1004, 1005]],
    ['too few steps to tell', [5, 50, 100, 200, 300]],
  ])('is silent about %s', (_, bytes) => {
    expect(growthOf(bytes)).toBeNull();
  });
});
