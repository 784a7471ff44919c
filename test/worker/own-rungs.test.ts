import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

describe('a rung that oomtune turned on', () => {
  it('is left out with a note where the script fails with it, and the others are searched', async () => {
    const bench = workbench('find-batch', [python, 'single.py'], { objective: 'throughput', maxBatch: 64 });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'found', config: { amp: 'off' } });
    const failed = report.probes.filter(({ outcome }) => outcome !== 'fit');
    expect(failed).toMatchObject([
      { amp: 'bf16', checkpointing: false, outcome: 'user_error' },
      { amp: 'bf16', checkpointing: true, outcome: 'user_error' },
    ]);
    const evidence = expect.stringMatching(
      /^bf16 is left out: the command fails with it \(user_error: ".*\bbfloat16\b/i,
    );
    expect(report.notes).toContainEqual(evidence);
    expect(bench.events).toContainEqual({ type: 'note', text: evidence });
    expect(report.probes.every(({ why }) => why !== undefined)).toBe(true);
    // What a daemon finds that goes on where another was killed
    const journal = bench.persisted.flatMap((one) => ('journal' in one ? [one.journal as []] : [])).at(-1) as [];
    const again = workbench('find-batch', [python, 'single.py'], { objective: 'throughput', maxBatch: 64 });
    const replayed = await findBatch({ ...again.request, journal }, again.deps);
    expect(replayed.config).toEqual(report.config);
    expect(replayed.probes).toHaveLength(report.probes.length);
  });

  it('does not keep a job from its end, either', async () => {
    const bench = workbench('run', [python, 'single.py'], { objective: 'throughput' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', failure: null, config: { amp: 'off', effective_batch: 32 } });
  });

  it('is named where the options leave no other', async () => {
    const bench = workbench('find-batch', [python, 'single.py'], { amp: 'bf16', checkpointing: 'off' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'failed', failure: { class: 'user_error' } });
    expect(report.failure?.advice).toContain('It failed with bf16, which the options ask for');
  });

  it('takes no blame from the script', async () => {
    const bench = workbench('find-batch', [python, 'single.py', '--broken'], { objective: 'throughput' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'failed', launches: 1 });
    expect(report.failure?.evidence).toContain('a fault of the script');
    expect(report.notes.join()).not.toContain('left out');
  });
});

it.each([null, 16])(
  'speeds are of samples that were trained, with an effective batch of %s',
  async (effectiveBatch) => {
    const bench = workbench('find-batch', [python, 'sleeps.py'], { maxBatch: 4, effectiveBatch });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'found', config: { accumulation: effectiveBatch === null ? 2 : 4 } });
    const speeds = [report.samples_per_s, ...report.probes.map((probe) => probe.samples_per_s)];
    expect(speeds).not.toContain(null);
    for (const speed of speeds) expect(speed).toBeLessThanOrEqual(40);
    expect(report.probes.map((probe) => probe.samples_per_s)).toContain(report.samples_per_s);
  },
);

it('a precision that a flag carries is not brought to the script by the hook as well', async () => {
  const cwd = mkdtempSync(join(tmpdir(), 'oomtune-precision-'));
  // nanoGPT on the CPU: it takes `--dtype`, and has no use for it.
  const loop = readFileSync(join(FIXTURES, 'by_hand', 'get_batch.py'), 'utf8')
    .replace(
      /for word in sys\.argv[\s\S]*?int\(value\)\n/,
      'dtype = "bfloat16"\nexec(open("configurator.py").read())\n',
    )
    .replace(
      'logits = self.head',
      'print("autocast", torch.is_autocast_cpu_enabled(), file=open("seen", "a"))\n        logits = self.head',
    );
  writeFileSync(join(cwd, 'train.py'), loop);
  cpSync(join(FIXTURES, '..', 'frameworks', 'nanogpt', 'configurator.py'), join(cwd, 'configurator.py'));
  const bench = workbench('find-batch', [python, 'train.py'], { cwd, maxBatch: 16, preset: 'auto' });
  const report = await findBatch(bench.request, bench.deps);
  expect(report).toMatchObject({ status: 'found', max_micro_batch: 16, config: { amp: 'bf16' } });
  // Several sizes in one process: the flag brought the first, the hook the others.
  expect(report.probes.length).toBeGreaterThan(report.launches);
  expect(readFileSync(join(cwd, 'seen'), 'utf8')).toMatch(/^(autocast False\n)+$/);
  rmSync(cwd, { recursive: true });
});
