import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { canExpand } from '../../src/worker/memory/allocator.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';
import { withGpu } from './stand-in-gpu.js';

// The set-up's torch may be older than such segments: here it says that it is not.
vi.mock('../../src/worker/command/torch.js', async (original) => {
  const real = await original<typeof import('../../src/worker/command/torch.js')>();
  return {
    ...real,
    askInterpreter: async (...asked: Parameters<typeof real.askInterpreter>) => {
      const answer = await real.askInterpreter(...asked);
      return answer && { ...answer, torch: '2.4.1' };
    },
  };
});

const python = pythonWithTorch();

async function run(changes: Parameters<typeof workbench>[2] = {}, environment: Record<string, string> = {}) {
  const bench = workbench('run', [python, 'fragments.py'], {
    device: 'cuda:0',
    budget: null,
    maxLaunches: 3,
    ...changes,
  });
  withGpu(bench);
  Object.assign(bench.request.environment, environment);
  const report = await runJob(bench.request, bench.deps);
  const { launches } = bench.persisted.findLast((patch) => 'launches' in patch) as { launches: { dir: string }[] };
  const allocators = launches.map(({ dir }) =>
    /allocator (.*)/.exec(readFileSync(join(dir, 'log'), 'utf8'))?.[1]?.trim(),
  );
  return { bench, report, allocators };
}

describe('expandable segments', () => {
  it('are for torch 2.1 and later, and not for ROCm', () => {
    const versions = ['1.13.0a0', '2.0.1', '2.1.0', '2.9.0+cu128', '2.4.1+rocm6.0', null];
    expect(versions.map(canExpand)).toEqual([false, false, true, true, false, false]);
  });

  it('are tried before any smaller batch, and kept for the run', async () => {
    const { report, allocators, bench } = await run();
    expect(report).toMatchObject({ outcome: 'succeeded', config: { micro_batch: 64, accumulation: 1 } });
    expect(allocators[0]).toBe('');
    expect(allocators.slice(1)).toEqual(
      allocators.slice(1).map(() => 'expandable_segments:True expandable_segments:True'),
    );
    expect([...bench.recorded.values()]).toMatchObject([{ expandable_segments: true }]);
  });

  it('are not turned on against the user’s own setting', async () => {
    const own = { PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:64' };
    const { allocators } = await run({}, own);
    expect(new Set(allocators)).toEqual(new Set(['max_split_size_mb:64']));
  });
});

/** 19 fits: within one, as for every size below 50. */
const NEARLY_19 = [18, 19];

describe('a search whose memory would be in pieces', () => {
  const search = (environment: Record<string, string> = {}) => {
    const bench = workbench('find-batch', [python, 'pieces.py'], { device: 'cuda:0', budget: null });
    withGpu(bench);
    Object.assign(bench.request.environment, environment);
    return { bench, report: findBatch(bench.request, bench.deps) };
  };

  it('has expandable segments from the first probe on, and says that they belong to its answer', async () => {
    const { bench, report } = search();
    const { config, max_micro_batch, apply, probes, status } = await report;
    expect(status).toBe('found');
    expect(config).toMatchObject({ expandable_segments: true });
    expect(max_micro_batch).toBeGreaterThanOrEqual(38);
    expect(apply?.env).toMatchObject({ PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True' });
    expect(probes.every((probe) => probe.expandable_segments)).toBe(true);
    expect(probes.filter((probe) => probe.micro_batch >= 20 && probe.outcome === 'fit').length).toBeGreaterThan(0);
    const [recorded] = [...bench.recorded.values()];
    expect(recorded).toMatchObject({ expandable_segments: true, max_micro_batch });

    // What was found is run so, in another process that reads the record.
    const later = workbench('run', [python, 'pieces.py'], { device: 'cuda:0', budget: null, effectiveBatch: 32 });
    withGpu(later);
    later.request.command = bench.request.command;
    for (const [key, value] of bench.recorded) later.recorded.set(key, value);
    const { outcome, config: ran } = await runJob(later.request, later.deps);
    expect([outcome, ran]).toMatchObject([
      'succeeded',
      { micro_batch: 32, accumulation: 1, expandable_segments: true },
    ]);
  });

  it('leaves them out where the driver refuses them, and says so', async () => {
    const { config, max_micro_batch, notes } = await search({ REFUSES: '1' }).report;
    expect(config).not.toHaveProperty('expandable_segments');
    expect(NEARLY_19).toContain(max_micro_batch);
    expect(notes?.join(' ')).toContain('Expandable segments are left out: the command fails with them');
  });

  it('does not say that the command fails with them where it fails without them, too', async () => {
    const { bench, report } = search({ MISTAKEN: '1' });
    const { status, notes, probes, launches } = await report;
    expect([status, launches]).toEqual(['failed', 2]);
    expect(probes.map(({ evidence }) => evidence)).toEqual([
      expect.stringContaining('KeyError'),
      expect.stringContaining('KeyError'),
    ]);
    expect(notes?.join(' ')).not.toContain('left out');
    await bench.noneLeft();
  });

  it('does not turn them on against the user’s own setting', async () => {
    const { config, max_micro_batch } = await search({ PYTORCH_ALLOC_CONF: 'max_split_size_mb:64' }).report;
    expect(config).not.toHaveProperty('expandable_segments');
    expect(NEARLY_19).toContain(max_micro_batch);
  });
});
