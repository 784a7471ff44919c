import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gpuJob } from './gpu.js';
import { constraints, found, GIB, type Job, type Result, search } from './machine.js';
import { networks } from './networks.js';
import { gpt2, vit } from './transformers.js';

const expandable = true;

/** Fits up to `plain`, or up to `grown` with segments that can grow; says `unallocated` bytes when it does not. */
function job(plain: number, grown: number, refused: Partial<Result> = {}): Job {
  return {
    run: ({ micro_batch: microBatch, expandable_segments: grows }) => {
      const most = grows ? grown : plain;
      if (microBatch > most) return { outcome: 'device_oom', ...(grows ? {} : refused) };
      const bytes = (microBatch * 23.5 * GIB) / Math.max(plain, grown);
      const peaks = { total_bytes: bytes, forward_backward_bytes: bytes, optimizer_bytes: 0, reserved_bytes: bytes };
      return { outcome: 'fit', step_s: 0.01 * microBatch, peaks: { ...peaks, resident_bytes: GIB } };
    },
  };
}
const pieces = { refused_bytes: GIB, unallocated_bytes: 4 * GIB, free_bytes: 0 };
const few = { refused_bytes: GIB, unallocated_bytes: GIB, free_bytes: GIB };
const full = { refused_bytes: 6 * GIB, unallocated_bytes: 4 * GIB, free_bytes: GIB };

describe('segments that can grow', () => {
  it('are tried in the launch that verifies, once a size has failed where memory was in pieces', () => {
    const s = search(job(100, 130, pieces), constraints({ expandable }));
    const answer = found(s);
    expect(answer.config.expandable_segments).toBe(true);
    expect(answer.max_micro_batch).toBeGreaterThanOrEqual(0.98 * 130);
    const first = s.probes.findIndex((probe) => probe.expandable_segments);
    expect(s.observations[first - 1]?.outcome).toBe('device_oom');
    expect(s.observations[first]?.fresh).toBe(true);
    expect(s.probes.slice(first).every((probe) => probe.expandable_segments)).toBe(true);
  });

  it('cost no launch where they bring nothing', () => {
    const without = search(job(100, 100, pieces), constraints());
    const s = search(job(100, 100, pieces), constraints({ expandable }));
    expect(s.launches).toBe(without.launches);
    expect(found(s).max_micro_batch).toBe(found(without).max_micro_batch);
  });

  it.each([
    ['little was in pieces', few],
    ['more was asked for than all of the pieces', full],
    ['nothing is said of pieces', {}],
  ])('are left alone in a search where %s', (_, refused) => {
    const s = search(job(100, 130, refused), constraints({ expandable }));
    expect(s.probes.some((probe) => probe.expandable_segments)).toBe(false);
    expect(found(s).config).not.toHaveProperty('expandable_segments');
  });

  it('are left alone where they may not be turned on', () => {
    expect(search(job(100, 130, pieces), constraints()).probes.some((probe) => probe.expandable_segments)).toBe(false);
  });

  it('are turned off again where a size fits without them and not with them', () => {
    const s = search(job(100, 80, pieces), constraints({ expandable }));
    const { config, max_micro_batch: maxMicroBatch } = found(s);
    expect(config).not.toHaveProperty('expandable_segments');
    expect(maxMicroBatch).toBeGreaterThanOrEqual(98);
    expect(s.observations.at(-1)?.expandable_segments ?? false).toBe(false);
  });

  it('come before the next rung where nothing fits', () => {
    const rungs = [{ amp: 'off', checkpointing: false } as const, { amp: 'bf16', checkpointing: false } as const];
    const s = search(job(0, 40, pieces), constraints({ expandable, rungs }));
    expect(found(s).config).toMatchObject({ amp: 'off', expandable_segments: true });
    expect(s.probes.slice(0, 2).map((probe) => [probe.micro_batch, probe.expandable_segments ?? false])).toEqual([
      [1, false],
      [1, true],
    ]);
  });

  const keep = (own: number) => constraints({ expandable, goal: 'keep', ownBatch: own });

  it('come before any smaller batch of a job that is to keep its own', () => {
    const s = search(job(20, 64), keep(64));
    expect(s.probes.map((probe) => [probe.micro_batch, probe.expandable_segments ?? false])).toEqual([
      [64, false],
      [64, true],
    ]);
    expect(found(s).config).toMatchObject({ micro_batch: 64, accumulation: 1, expandable_segments: true });
  });

  it('are not tried for a job’s own batch that no order of the pieces could hold', () => {
    const s = search(job(40, 64, full), keep(64));
    expect(s.probes.some((probe) => probe.expandable_segments)).toBe(false);
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

  it('are no part of the answer for ViT, which leaves next to nothing in pieces', () => {
    const s = search(gpuJob(vit(), 25 * GIB), constraints({ budgetBytes: 25 * GIB, expandable }));
    expect(found(s).config).not.toHaveProperty('expandable_segments');
    expect(s.launches).toBe(2);
  });

  it('gain for many networks, cost few a launch in vain, and give answers that last 200 steps', () => {
    const drawn = fc.sample(fc.tuple(networks, fc.integer({ min: 6, max: 40 })), { numRuns: 200, seed: 42 });
    const searches = drawn.flatMap(([network, gib]) => {
      const gpu = gpuJob(network, gib * GIB);
      if (!gpu.lasts(1, 10) || gpu.lasts(2000, 2)) return [];
      const plain = search(gpu, constraints({ budgetBytes: gib * GIB }));
      const s = search(gpu, constraints({ budgetBytes: gib * GIB, expandable }));
      const gain = found(s).max_micro_batch / found(plain).max_micro_batch;
      const { max_micro_batch: maxMicroBatch, config } = found(s);
      const grows = config.expandable_segments ?? false;
      const lasts = gpu.lasts(maxMicroBatch, 200, grows) && gpu.lasts(config.micro_batch, 200, grows);
      // Above its edge a plain allocator may take single sizes again, by luck.
      const enough = gain >= 0.96 || maxMicroBatch >= 0.98 * gpu.edge(10);
      return [{ gain, enough, lasts, more: s.launches - plain.launches }];
    });
    const gained = searches.filter(({ gain }) => gain > 1.02);
    const inVain = searches.filter(({ gain, more }) => gain <= 1.02 && more > 0);
    // Less than five per cent more is worth no launch.
    expect(gained.length / searches.length).toBeGreaterThan(0.2);
    expect(inVain.length / searches.length).toBeLessThan(0.15);
    expect(searches.every(({ enough }) => enough)).toBe(true);
    expect(searches.filter(({ lasts }) => lasts).length / searches.length).toBeGreaterThan(0.97);
  });
});
