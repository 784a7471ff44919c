import { cpSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { explainRecommendation } from '../../src/cli/explain-view.js';
import type { JobOptions } from '../../src/contract/options.js';
import type { Recommendation } from '../../src/contract/recommendation.js';
import type { Rehearsal } from '../../src/contract/rehearsal.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
/** An interpreter with the real frameworks; empty: they could not be installed, or were not asked for. */
const current = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (current === '')
  process.stderr.write('SKIPPED: rehearsals with frameworks, as OOMTUNE_TEST_FRAMEWORKS names no interpreter\n');

/** A folder with a copy of the script, as it is to stay as it was. */
function folderOf(script: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-rehearsed-'));
  cpSync(join(FIXTURES, script), join(folder, script));
  return folder;
}

async function found(how: string[], options: Partial<JobOptions> = {}, script = 'rehearsed.py', interpreter = python) {
  const cwd = folderOf(script);
  const bench = workbench('find-batch', [interpreter, script, ...how], {
    ...{ budget: '150MiB', maxBatch: 16, timeoutSeconds: 300, probeEval: true, cwd },
    ...options,
  });
  const report = await findBatch(bench.request, bench.deps);
  await bench.noneLeft();
  const phases = report.rehearsal?.phases.map(({ phase }) => phase);
  const evaluated = report.rehearsal?.phases.find(({ phase }) => phase === 'eval');
  return { ...bench, report, phases, evaluated, left: readdirSync(cwd).filter((name) => name !== script) };
}

describe('a rehearsal', () => {
  it('shows the peaks of evaluation and saving, and leaves nothing of what the script writes', async () => {
    const { report, phases, evaluated, left, recorded } = await found(['plain']);
    expect(report.status).toBe('found');
    expect(phases).toEqual(['train', 'eval', 'save']);
    expect(report.rehearsal).toMatchObject({ steps: 3, out_of_memory: null });
    expect(evaluated).toMatchObject({ batches: 50, of_batches: 200, batch: 8, whole_bytes: null });
    expect(left).toEqual([]);
    const [recommendation] = [...recorded.values()] as [Recommendation];
    expect(recommendation.rehearsal).toEqual(report.rehearsal);
    expect(explainRecommendation(recommendation, (_, text) => text)).toMatch(/training .*; evaluation .*; saving /);
  });

  it('tells what an evaluation takes that collects its outputs on the device, to its end where that leads past the budget', async () => {
    const within = await found(['collect'], { budget: '900MiB' });
    expect(within.report).toMatchObject({ status: 'found', rehearsal: { out_of_memory: null } });
    const { peak_bytes: peak, whole_bytes: whole } = within.evaluated ?? {};
    // 2 MB for each of the 150 batches that were left out.
    expect(within.evaluated).toMatchObject({ batches: 50, of_batches: 200 });
    expect(Math.round(((whole ?? 0) - (peak ?? 0)) / 2e6)).toBe(150);
    const beyond = await found(['collect']);
    expect(beyond.report).toMatchObject({ status: 'exhausted', config: null, failure: { reason: 'eval' } });
    expect(beyond.report.rehearsal).toMatchObject({ out_of_memory: 'eval' });
    expect(beyond.evaluated?.batches).toBeGreaterThan(50);
    expect(beyond.report.failure?.advice).toMatch(
      /evaluation ran out of memory, at batch \d+ of 200 \(8 samples each\)/,
    );
    expect(beyond.report.failure?.advice).toContain('.cpu()');
    expect(beyond.recorded.size).toBe(0);
  });

  it('knows an evaluation by its loop where the model stays in training mode', async () => {
    const { phases, report } = await found(['inside']);
    expect(phases).toEqual(['train', 'eval']);
    expect(report.status).toBe('found');
  });

  it('comes to an evaluation every so many steps, with a loader or without', async () => {
    const steps = await found(['steps']);
    expect(steps.phases).toEqual(['train', 'eval']);
    const byHand = await found(['by-hand']);
    expect(byHand.phases).toEqual(['train', 'eval']);
    expect(byHand.report.rehearsal?.steps).toBe(40);
  });

  it('says that no evaluation was seen, of a script without one and of one that evaluates too rarely', async () => {
    for (const how of ['none', 'rarely']) {
      const { report, phases } = await found([how]);
      expect(report.status).toBe('found');
      expect(phases).toEqual(['train']);
      expect(report.notes.join(' ')).toContain('No evaluation was seen');
    }
  });

  it('shows a generation', async () => {
    const { report, phases } = await found(['generate']);
    expect(phases).toEqual(['train', 'generate']);
    const [train, generate] = report.rehearsal?.phases ?? [];
    expect((generate?.peak_bytes ?? 0) - (train?.peak_bytes ?? 0)).toBeGreaterThan(25e6);
  });

  it('of a script that fails in it for another reason says so, and the answer stands', async () => {
    const { report } = await found(['fails']);
    expect(report.status).toBe('found');
    expect(report.notes.join(' ')).toContain('the metric is not defined for so few batches');
  });

  it('steps down where one flag sets the batch of both, and the job runs at that', async () => {
    const command = [python, 'rehearsed.py', 'follows', '{micro_batch}'];
    const options = {
      budget: '150MiB',
      effectiveBatch: 64,
      maxBatch: 64,
      probeEval: true,
      cwd: folderOf('rehearsed.py'),
    };
    const bench = workbench('run', command, options);
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', config: { micro_batch: 16, accumulation: 4 } });
    expect(report.rehearsal).toMatchObject({ out_of_memory: null });
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes.filter((text) => text.includes('A smaller training batch helps'))).toHaveLength(2);
    await bench.noneLeft();
  });

  it('steps down where what training leaves in memory is in the way of an evaluation with a batch of its own', async () => {
    const { report, persisted } = await found(['leaves'], { budget: '300MiB' });
    const rehearsals = persisted.flatMap((patch) => ('rehearsal' in patch ? [patch.rehearsal as Rehearsal] : []));
    expect(rehearsals.map((one) => one.out_of_memory)).toEqual(['eval', null]);
    const evaluated = rehearsals.map(({ phases }) => phases.find(({ phase }) => phase === 'eval'));
    expect(evaluated.map((one) => one?.batch)).toEqual([8, 8]);
    // 10 MB for each sample of the training's batch.
    const [before, after] = evaluated.map((one) => Math.round((one?.held_bytes ?? 0) / 1e7)) as [number, number];
    expect(after).toBe(Math.floor(before / 2));
    expect(report).toMatchObject({ status: 'found', config: { micro_batch: after, accumulation: 1 } });
  });

  it('tries no smaller size where the loop keeps its whole batch all the same', async () => {
    const options = { budget: '300MiB', cwd: folderOf('rehearsed.py'), probeEval: true };
    const bench = workbench('run', [python, 'rehearsed.py', 'leaves'], options);
    const report = await runJob(bench.request, bench.deps);
    await bench.noneLeft();
    expect(report).toMatchObject({ outcome: 'exhausted', rehearsal: { out_of_memory: 'eval' } });
    const rehearsals = bench.persisted.filter((patch) => 'rehearsal' in patch);
    expect(rehearsals).toHaveLength(1);
    const [held] = report.rehearsal?.phases.flatMap(({ held_bytes }) => held_bytes ?? []) ?? [];
    expect(held).toBeGreaterThan(16 * 1e7);
  });

  it('keeps a job from being run whose evaluation would end it, at any size of its training batch', async () => {
    const bench = workbench('run', [python, 'rehearsed.py', 'large'], { budget: '150MiB', probeEval: true });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({
      outcome: 'exhausted',
      exit_code: null,
      config: null,
      rehearsal: { out_of_memory: 'eval' },
    });
    expect(report.failure).toMatchObject({
      class: 'device_oom',
      phase: 'eval',
      reason: 'eval',
      cure: 'none',
      certain: true,
    });
    expect(report.launches).toBe(2);
    expect(bench.persisted).toContainEqual(expect.objectContaining({ rehearsal: report.rehearsal }));
    expect(bench.events).not.toContainEqual(expect.objectContaining({ type: 'running' }));
    await bench.noneLeft();
  });
});

describe('a rehearsal of two ranks', () => {
  const rehearsed = async (megabytes: number) => {
    const command = [python, 'rehearsed.py', String(megabytes)];
    const options = { cwd: join(FIXTURES, 'ranks'), budget: '150MiB', probeEval: true } as const;
    const bench = workbench('run', command, options);
    const report = await runJob(bench.request, bench.deps);
    await bench.noneLeft();
    return report;
  };

  it('shows the peaks of the one that takes more', async () => {
    const report = await rehearsed(60);
    expect(report).toMatchObject({ outcome: 'succeeded', rehearsal: { out_of_memory: null, steps: 3 } });
    const [train, evaluated] = report.rehearsal?.phases ?? [];
    expect([train?.phase, evaluated?.phase]).toEqual(['train', 'eval']);
    expect(evaluated?.peak_bytes).toBeGreaterThan(60e6);
    expect(train?.peak_bytes).toBeLessThan(60e6);
  });

  it('keeps both from being run where one of them would end in its evaluation', async () => {
    const report = await rehearsed(300);
    expect(report).toMatchObject({ outcome: 'exhausted', config: null, rehearsal: { out_of_memory: 'eval' } });
    expect(report.failure).toMatchObject({ class: 'device_oom', phase: 'eval', reason: 'eval' });
  });
});

describe.skipIf(current === '')('a rehearsal of a framework', () => {
  it.each([
    ['rehearsed_trainer.py', 'epoch', 1000],
    ['rehearsed_trainer.py', '500', 1000],
    ['rehearsed_lightning.py', 'interval', 400],
  ])('comes to its evaluation and checkpoint: %s, %s', async (script, how, batches) => {
    const { report, phases, evaluated } = await found([how], { budget: '400MiB', maxBatch: 8 }, script, current);
    expect(report.notes.join(' ')).not.toMatch(/rehears/);
    expect(report.status).toBe('found');
    expect(phases).toEqual(expect.arrayContaining(['train', 'eval', 'save']));
    expect(evaluated).toMatchObject({ of_batches: batches });
    expect(report.rehearsal?.steps).toBeLessThan(12);
  });
});
