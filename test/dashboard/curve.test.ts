import { describe, expect, it } from 'vitest';
import { Ring } from '../../src/daemon/observe/watch.js';
import { curvesOf } from '../../src/tuner/curve.js';
import { observation } from './search.js';

const MIB = 1 << 20;

describe('curvesOf', () => {
  it("draws the tuner's line through the sizes that fitted, and says which did not", () => {
    const journal = [1, 8, 32].map((size) => observation(size, (20 + 4 * size) * MIB));
    const [curve] = curvesOf([...journal, observation(48, null), observation(40, null)], 180 * MIB);
    expect(curve?.fits).toEqual([
      [1, 24 * MIB],
      [8, 52 * MIB],
      [32, 148 * MIB],
    ]);
    expect(curve?.failed).toEqual([40, 48]);
    expect(curve?.line?.slope).toBeCloseTo(4 * MIB, 3);
    expect(curve?.line?.base).toBeCloseTo(20 * MIB, 0);
  });

  it('keeps rungs apart, and draws no line through one point', () => {
    const bf16 = { rung: { amp: 'bf16' as const, checkpointing: false } };
    const curves = curvesOf([observation(4, null), observation(4, 90 * MIB, bf16)], null);
    expect(curves).toEqual([
      { rung: 'as it stands', fits: [], failed: [4], line: null },
      { rung: 'bf16', fits: [[4, 90 * MIB]], failed: [], line: null },
    ]);
  });

  it('has nothing to draw before the first size was tried', () => {
    expect(curvesOf([], 100)).toEqual([]);
  });
});

describe('Ring', () => {
  const peakOf = (ring: Ring): number => Math.max(...ring.samples.map(({ bytes }) => bytes));

  it('stays within its bounds, reaches from the first to the last, and loses no peak', () => {
    const ring = new Ring(100);
    for (let at = 0; at < 10_000; at += 1) ring.add({ at, launch: 1, bytes: at === 7777 ? 999 : at % 10 });
    expect(ring.samples.length).toBeLessThanOrEqual(100);
    expect(ring.samples.length).toBeGreaterThan(40);
    expect(ring.samples[0]?.at).toBe(0);
    expect(ring.samples.at(-1)?.at).toBeGreaterThan(9500);
    expect(peakOf(ring)).toBe(999);
  });

  it('never joins samples of two launches', () => {
    const ring = new Ring(64);
    for (let at = 0; at < 2000; at += 1)
      ring.add({ at, launch: 1 + Math.floor(at / 200), bytes: 1 + Math.floor(at / 200) });
    expect([...new Set(ring.samples.map(({ launch }) => launch))]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for (const { launch, bytes } of ring.samples) expect(bytes).toBe(launch);
  });

  it('stays within its bounds where every sample is a launch of its own', () => {
    const ring = new Ring(10);
    for (let at = 0; at < 1000; at += 1) ring.add({ at, launch: at, bytes: at });
    expect(ring.samples.length).toBeLessThanOrEqual(10);
    expect(ring.samples.at(-1)?.launch).toBe(999);
  });
});
