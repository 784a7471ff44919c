import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { explainJob, explainRecommendation } from '../../src/cli/explain-view.js';
import { renderFound } from '../../src/cli/find-batch-view.js';
import type { JobOptions } from '../../src/contract/options.js';
import type { Recommendation } from '../../src/contract/recommendation.js';
import { type RungLike, sameRung } from '../../src/contract/rung.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { job } from '../store/samples.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

/** What the job itself printed, when all was decided. */
function output({ persisted }: ReturnType<typeof workbench>): string {
  const { launches } = persisted.findLast((patch) => 'launches' in patch) as {
    launches: { dir: string; purpose: string }[];
  };
  return readFileSync(join(launches.at(-1)?.dir as string, 'log'), 'utf8');
}

describe('the ladder with real processes', () => {
  it('surveys every rung in one process for the fastest, and finds its largest size', async () => {
    const bench = workbench('find-batch', [python, 'deep.py', '32'], {
      budget: '24MiB',
      objective: 'throughput',
      effectiveBatch: 512,
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    const rungs = new Set(report.probes.filter((p) => p.launch === 1).map((p) => `${p.amp} ${p.checkpointing}`));
    expect([...rungs].sort()).toEqual(['bf16 false', 'bf16 true', 'off false', 'off true']);
    // Only the search for the largest size on the rung that was chosen may run out of memory.
    const same = (one: RungLike) => sameRung(one, report.config as RungLike);
    const chosen = report.probes.filter(same);
    expect(report.probes.filter((p) => p.outcome !== 'fit').every((p) => chosen.includes(p))).toBe(true);
    expect(report.config?.effective_batch).toBe(512);
    // Their speeds are compared in turns, and the rung is not chosen by noise.
    const { together, speeds = [] } = report.comparison ?? {};
    expect(together).toBe(true);
    expect(speeds.length).toBeGreaterThanOrEqual(2);
    const turns = report.probes.filter(({ why }) => why?.startsWith('the rungs are compared'));
    expect(new Set(turns.map(({ launch }) => launch)).size).toBe(1);
    const compared = speeds.filter(({ spread }) => spread !== null);
    expect(compared.length).toBeGreaterThanOrEqual(2);
    for (const one of compared) {
      expect(turns.filter((turn) => sameRung(turn, one))).toHaveLength(one.rounds);
    }
    expect(sameRung(turns[0] as RungLike, turns[1] as RungLike)).toBe(false);
    const fastest = speeds.toSorted((a, b) => b.samples_per_s - a.samples_per_s)[0];
    const taken = speeds.find(same);
    const reach = (fastest?.spread ?? 0) + (taken?.spread ?? 0);
    expect(taken?.samples_per_s ?? 0).toBeGreaterThan((fastest?.samples_per_s ?? 0) - 2 * reach);
    const plain = (_style: unknown, text: string): string => text;
    expect(renderFound(report, plain)).toMatch(/compared +\S.* ± .* samples\/s, in [35] turns of one process/);
    const [recorded] = bench.recorded.values();
    expect(recorded?.comparison).toEqual(report.comparison);
    expect(explainRecommendation(recorded as Recommendation, plain)).toMatch(/Its rung was chosen by speed: .* ± /);
    const submitted = job({ state: 'succeeded', config: report.config });
    expect(explainJob(submitted, recorded as Recommendation, null, plain)).toMatch(/That was chosen by speed: .* ± /);
    const rate = (probes: typeof chosen) =>
      Math.max(...probes.filter((p) => p.launch === 1 && p.step_s).map((p) => p.micro_batch / (p.step_s as number)));
    const surveyed = chosen.filter((p) => p.micro_batch <= 512);
    expect(rate(surveyed)).toBeGreaterThan(0.5 * rate(report.probes.filter((p) => p.micro_batch <= 512)));
  });

  it('says that launches were compared where each setting is one', async () => {
    const bench = workbench('find-batch', [python, 'flags.py', '--batch', '{micro_batch}'], {
      objective: 'throughput',
      checkpointing: 'off',
      maxBatch: 32,
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    expect(report.comparison).toMatchObject({ together: false, speeds: [{ rounds: 1, spread: null }, { rounds: 1 }] });
    expect(report.notes.join(' ')).toContain('compared across launches, each measured once');
  });

  it('runs a job to its end in the precision that was found', async () => {
    const bench = workbench('run', [python, 'deep.py', '32'], {
      budget: '20MiB',
      objective: 'throughput',
      amp: 'bf16',
    });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    expect(report.config).toMatchObject({ amp: 'bf16', effective_batch: 4096 });
    expect(output(bench)).toContain('trained in torch.bfloat16');
  });

  describe('where activations can be moved to a second memory (a file stands in for it)', () => {
    const bench = (purpose: 'find-batch' | 'run', options: Partial<JobOptions>) => {
      const { request, ...rest } = workbench(purpose, [python, 'deep.py'], {
        budget: '80MiB',
        amp: 'off',
        checkpointing: 'off',
        env: ['PYTHONPATH', 'STREAMED', 'PARTS'],
        ...options,
      });
      const environment = {
        ...request.environment,
        PYTHONPATH: join(FIXTURES, 'state'),
        STREAMED: String(4 * 1024 ** 2),
      };
      return { request: { ...request, environment }, ...rest };
    };

    it('finds sizes that the device alone cannot take', async () => {
      const { request, deps } = bench('find-batch', { minBatch: 2400, maxBatch: 3000 });
      const report = await findBatch(request, deps);
      expect(report.config).toMatchObject({ amp: 'off', checkpointing: false, offload: true });
      expect(report.max_micro_batch).toBe(3000);
      // The device alone could not take the smallest of them.
      expect(report.probes.map((p) => [p.micro_batch, p.outcome])[0]).toEqual([2400, 'device_oom']);
      expect(report.probes.slice(1).every((p) => p.outcome === 'fit')).toBe(true);
      expect(report.launches).toBeLessThanOrEqual(3);
      // Each probe names its rung
      expect(report.probes.map((p) => p.offload ?? false)).toEqual([false, ...report.probes.slice(1).map(() => true)]);
    });

    it('runs a job to its end that fits in no other way', async () => {
      const { request, deps, ...rest } = bench('run', { accumulation: 'off' });
      const report = await runJob(request, deps);
      expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
      expect(report.config).toMatchObject({ micro_batch: 4096, accumulation: 1, offload: true });
      expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(80 * 1024 ** 2);
      expect(output({ request, deps, ...rest })).toContain('trained in torch.float32');
    });
  });

  it('moves no more of the activations than has to go, where nothing is checkpointed', async () => {
    const { request, deps } = workbench('find-batch', [python, 'deep.py'], {
      ...{ budget: '80MiB', amp: 'off', checkpointing: 'off', minBatch: 2000, maxBatch: 2000 },
      env: ['PYTHONPATH', 'STREAMED', 'PARTS'],
    });
    const more = { PYTHONPATH: join(FIXTURES, 'state'), STREAMED: '1', PARTS: '1' };
    const report = await findBatch({ ...request, environment: { ...request.environment, ...more } }, deps);
    expect(report.probes.map((p) => [p.outcome, p.offload ?? false])[0]).toEqual(['device_oom', false]);
    expect(report.config, JSON.stringify(report.probes)).toMatchObject({
      ...{ micro_batch: 2000, checkpointing: false, offload: true, offloaded_part: expect.stringMatching(/^0\.[36]$/) },
    });
  });
});
