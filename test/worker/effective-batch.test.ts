import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { renderFound } from '../../src/cli/find-batch-view.js';
import type { FindBatchReport } from '../../src/contract/reports.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const COMMAND = [python, 'schedule.py'];
const plain = (_style: unknown, text: string): string => text;

describe('the effective batch is the script\u2019s', () => {
  let report: FindBatchReport;
  let text: string;
  const bench = workbench('find-batch', COMMAND, { name: 'schedule' });

  beforeAll(async () => {
    report = await findBatch(bench.request, bench.deps);
    text = renderFound(report, plain);
  });

  it('find-batch says what the script asks for by itself', () => {
    expect(report.own).toEqual({ micro_batch: 64, accumulation: 1, effective_batch: 64, samples: 512 });
    expect(text).toMatch(/the script +asks for micro-batch 64 by itself/);
  });

  it('says that the data set is the limit where all of it fits', async () => {
    expect(report.max_micro_batch).toBe(512);
    expect(report.notes).toContain(
      'All 512 samples of the data set fit at once: the data set is the limit here, not the memory.',
    );
    const asked = workbench('find-batch', COMMAND, { maxBatch: 128 });
    expect((await findBatch(asked.request, asked.deps)).notes.join()).not.toContain('the data set is the limit');
  });

  it('has a line to paste that keeps it, and another that says what a larger one means', () => {
    const effective = String(report.config?.effective_batch);
    expect(report.apply?.oomtune.slice(0, 6)).toEqual([
      ...['oomtune', 'run', '--name', 'schedule'],
      ...['--effective-batch', effective],
    ]);
    expect(text).toContain(`run it: oomtune run --name schedule --device cpu --budget 200MiB -- ${COMMAND.join(' ')}`);
    expect(text).toContain(`larger: oomtune run --name schedule --effective-batch ${effective} `);
    const times = Number(effective) / 64;
    const steps = Math.ceil(512 / Number(effective));
    expect(text).toContain(
      `each step ${Number(times.toPrecision(3))} times the samples, and an epoch ${steps} step${steps === 1 ? '' : 's'} instead of 8:`,
    );
  });

  it('has one line where another was asked for', async () => {
    const asked = workbench('find-batch', COMMAND, { effectiveBatch: 32 });
    const shown = renderFound(await findBatch(asked.request, asked.deps), plain);
    expect(shown).toContain('run it: oomtune run --name schedule');
    expect(shown).toContain('--effective-batch 32');
    expect(shown).not.toContain('larger:');
  });

  it.each([
    [256, 'planned 4 scheduled 4', 'recorded'],
    [32, 'planned 32 scheduled 32', 'recorded'],
    [null, 'planned 16 scheduled 16', 'recorded'],
    [128, 'planned 8 scheduled 8', 'searched'],
  ])('a schedule made of len(loader) is right with --effective-batch %s', async (effectiveBatch, said, how) => {
    const run = workbench('run', COMMAND, { name: 'schedule', effectiveBatch });
    if (how === 'recorded') for (const [key, value] of bench.recorded) run.recorded.set(key, value);
    expect(await runJob(run.request, run.deps)).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    const patch = run.persisted.findLast((one) => 'launches' in one) as { launches: { dir: string }[] };
    const log = readFileSync(join(patch.launches.at(-1)?.dir as string, 'log'), 'utf8');
    expect(log).toBe(`${said}, held out 2\n`);
  });
});

describe('a flag for the size of a DataLoader’s batches', () => {
  it('is asked for no more than the data set has, however much memory there is', async () => {
    const bench = workbench('find-batch', [python, 'flagged.py', '-b', '{micro_batch}'], { steps: 2 });
    const { max_micro_batch: max, probes, notes } = await findBatch(bench.request, bench.deps);
    expect(max).toBe(500);
    expect(Math.max(...probes.map((probe) => probe.micro_batch))).toBe(500);
    expect(notes).toContain(
      'All 500 samples of the data set fit at once: the data set is the limit here, not the memory.',
    );
  });
});
