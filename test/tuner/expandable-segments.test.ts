import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gpuJob } from './gpu.js';
import { constraints, found, GIB, type Job, mostSizes, type Result, search } from './machine.js';
import { networks } from './networks.js';
import { gpt2 } from './transformers.js';

const expandable = 'possible' as const;

/** Fits up to `plain`, or up to `grown` with segments that can grow; says `unallocated` bytes when it does not. */
function job(plain: number, grown: number, refused: Partial<Result> = {}): Job {
  return {
    run: ({ micro_batch: microBatch, expandable_segments: grows }) => {
      const most = grows ? grown : plain;
      if (microBatch > most) return { outcome: 'device_oom', ...(grows ? {} : refused) };
      const bytes = (microBatch * 23.95 * GIB) / Math.max(plain, grown);
      const peaks = { total_bytes: bytes, forward_backward_bytes: bytes, optimizer_bytes: 0, reserved_bytes: bytes };
      return { outcome: 'fit', step_s: 0.01 * microBatch, peaks: { ...peaks, resident_bytes: GIB } };
    },
  };
}
const pieces = { refused_bytes: GIB, unallocated_bytes: 4 * GIB, free_bytes: 0 };
const full = { refused_bytes: 6 * GIB, unallocated_bytes: 4 * GIB, free_bytes: GIB };

describe('segments that can grow', () => {
  it('are there from the first launch of a search on, and are named in the answer', () => {
    const s = search(job(100, 130, pieces), constraints({ expandable }));
    const answer = found(s);
    expect(answer.config.expandable_segments).toBe(true);
    expect(answer.max_micro_batch).toBeGreaterThanOrEqual(0.98 * 130);
    expect(answer.max_micro_batch).toBeLessThanOrEqual(130);
    expect(s.probes.every((probe) => probe.expandable_segments)).toBe(true);
    expect(s.launches).toBe(2);
  });

  it('are not turned on where that is not possible, and not where the user has turned them on', () => {
    for (const more of [{}, { expandable: 'on' as const }]) {
      const s = search(job(100, 130, pieces), constraints(more));
      expect(s.probes.some((probe) => probe.expandable_segments)).toBe(false);
      expect(found(s).config).not.toHaveProperty('expandable_segments');
    }
  });

  it('end the search as exactly where the user has turned them on', () => {
    const gpu = gpuJob(gpt2(), 24 * GIB, true);
    const s = search(gpu, constraints({ budgetBytes: 24 * GIB, expandable: 'on' }));
    expect(gpu.lasts(found(s).max_micro_batch, 200)).toBe(true);
    expect(gpu.lasts(found(s).max_micro_batch + 2, 10)).toBe(false);
    expect(s.launches).toBe(2);
  });

  it('do not keep the next rung from being tried where nothing fits', () => {
    const rungs = [{ amp: 'off', checkpointing: false } as const, { amp: 'bf16', checkpointing: false } as const];
    const narrow: Job = {
      run: (probe, warm) => (probe.rung.amp === 'off' ? { outcome: 'device_oom' } : job(20, 20).run(probe, warm)),
    };
    const s = search(narrow, constraints({ expandable, rungs }));
    expect(found(s).config).toMatchObject({ amp: 'bf16', expandable_segments: true });
    expect(s.probes.slice(0, 2).map((probe) => [probe.rung.amp, probe.micro_batch])).toEqual([
      ['off', 1],
      ['bf16', 1],
    ]);
  });

  const keep = (own: number) => constraints({ expandable, goal: 'keep', ownBatch: own });
  const tried = (s: ReturnType<typeof search>) =>
    s.probes.map((probe) => [probe.micro_batch, probe.expandable_segments ?? false]);

  it('are not turned on for a job that fits as it stands', () => {
    const s = search(job(64, 64), keep(64));
    expect(tried(s)).toEqual([[64, false]]);
    expect(found(s).config).not.toHaveProperty('expandable_segments');
  });

  it('come before any smaller batch of a job that is to keep its own', () => {
    const s = search(job(20, 64), keep(64));
    expect(tried(s)).toEqual([
      [64, false],
      [64, true],
    ]);
    expect(found(s).config).toMatchObject({ micro_batch: 64, accumulation: 1, expandable_segments: true });
  });

  it('are not tried for a job’s own batch that no order of the pieces could hold', () => {
    const s = search(job(40, 64, full), keep(64));
    expect(tried(s)[0]).toEqual([64, false]);
    expect(tried(s)).not.toContainEqual([64, true]);
    expect(found(s).config).toMatchObject({ micro_batch: 32, accumulation: 2 });
  });

  it('stay for the smaller sizes of a job whose own did not fit with them either', () => {
    const s = search(job(20, 40), keep(64));
    expect(found(s).config).toMatchObject({ micro_batch: 32, accumulation: 2, expandable_segments: true });
  });

  it('let GPT-2 train at a larger size under 24 GiB than a plain allocator does', () => {
    const gpu = gpuJob(gpt2(), 24 * GIB);
    const plain = found(search(gpu, constraints({ budgetBytes: 24 * GIB })));
    const grown = found(search(gpu, constraints({ budgetBytes: 24 * GIB, expandable })));
    expect(plain.max_micro_batch).toBeGreaterThanOrEqual(25);
    expect(grown.max_micro_batch).toBeGreaterThanOrEqual(27);
    expect(gpu.lasts(grown.max_micro_batch, 200, true)).toBe(true);
  });

  it('measure the size to recommend on the way up where a fresh process is a fork, and prove only the largest in one', () => {
    const s = search(job(400, 400), constraints({ budgetBytes: 24 * GIB, expandable }), false, 400, true);
    const { config, max_micro_batch: max, headroom_pct: left } = found(s);
    expect(s.probes.filter((probe) => probe.fresh).map((probe) => probe.micro_batch)).toEqual([max]);
    expect(s.probes.at(-1)?.micro_batch).toBe(max);
    expect(max).toBeGreaterThanOrEqual(0.98 * 400);
    expect(config.micro_batch).toBeGreaterThanOrEqual(0.95 * 400);
    expect(left).toBeGreaterThanOrEqual(3);
  });

  it.each([false, true])(
    'leave the search of many networks two launches and next to no failure, and give larger answers that last 200 steps (forks: %s)',
    (forks) => {
      const drawn = fc.sample(fc.tuple(networks, fc.integer({ min: 6, max: 40 })), { numRuns: 200, seed: 42 });
      const searches = drawn.flatMap(([network, gib]) => {
        const gpu = gpuJob(network, gib * GIB);
        if (!gpu.lasts(1, 10) || gpu.lasts(2000, 2)) return [];
        const s = search(gpu, constraints({ budgetBytes: gib * GIB, expandable }), false, 400, forks);
        const { max_micro_batch: max, config } = found(s);
        const edge = gpu.edge(10);
        const lasts = gpu.lasts(max, 200, true) && gpu.lasts(config.micro_batch, 200, true);
        const near = edge < 50 ? edge - max <= 1 : max >= 0.98 * edge;
        return [
          {
            gain: max / edge,
            near,
            lasts,
            launches: s.launches,
            failures: s.oomLaunches,
            sizes: mostSizes(s),
            probes: s.probes.length,
          },
        ];
      });
      const share = (of: (one: (typeof searches)[number]) => boolean) => searches.filter(of).length / searches.length;
      const mean = (of: (one: (typeof searches)[number]) => number) =>
        searches.reduce((sum, one) => sum + of(one), 0) / searches.length;
      expect(mean((one) => one.launches)).toBeLessThan(forks ? 1.01 : 2.2);
      expect(mean((one) => one.probes)).toBeLessThan(forks ? 7.7 : 8.2);
      expect(mean((one) => one.failures)).toBeLessThan(0.02);
      expect(Math.max(...searches.map((one) => one.sizes))).toBeLessThanOrEqual(8);
      expect(mean((one) => one.gain)).toBeGreaterThan(1.03);
      expect(share((one) => one.near)).toBeGreaterThan(0.975);
      expect(share((one) => one.lasts)).toBe(1);
    },
  );
});
