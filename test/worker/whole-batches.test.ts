import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const SCRIPT = [python, 'flagged.py'];
const LOOK = /^steps (\d+) weights (\S+)\n$/;

/** What a script said that it trained: optimizer steps, and a sum of its weights. */
function trained(text: string): { steps: number; weights: number } {
  const [, steps, weights] = LOOK.exec(text) ?? [];
  expect(text).toMatch(LOOK);
  return { steps: Number(steps), weights: Number(weights) };
}

async function run(command: string[], options: Parameters<typeof workbench>[2]) {
  const bench = workbench('run', command, options);
  const report = await runJob(bench.request, bench.deps);
  const { launches } = bench.persisted.findLast((one) => 'launches' in one) as { launches: { dir: string }[] };
  const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
  return { report, notes, log: readFileSync(join(launches.at(-1)?.dir as string, 'log'), 'utf8') };
}

describe('a batch that a flag says, where none says the accumulation', () => {
  let alone: ReturnType<typeof trained>;

  beforeAll(() => {
    alone = trained(execFileSync(python, ['flagged.py', '-b', '64'], { cwd: FIXTURES, encoding: 'utf8' }));
    expect(alone.steps).toBe(16);
  });

  it.each([
    { how: "in the preset's flag", words: ['-b', '64'], asked: {} },
    { how: "by the script's own default", words: [], asked: {} },
    { how: 'by a placeholder', words: ['-b', '{micro_batch}'], asked: { effectiveBatch: 64 } },
  ])('is trained whole when its micro-batch comes $how', async ({ words, asked }) => {
    const { report, log } = await run([...SCRIPT, ...words], { minBatch: 16, maxBatch: 16, ...asked });
    expect(report).toMatchObject({
      outcome: 'succeeded',
      config: { micro_batch: 16, accumulation: 4, effective_batch: 64 },
      cut: { cut: 'model' },
    });
    const { steps, weights } = trained(log);
    expect(steps).toBe(alone.steps);
    expect(Math.abs(weights / alone.weights - 1)).toBeLessThan(1e-9);
  });

  it('is not cut where nothing can accumulate, but said to be in need of it', async () => {
    // -E keeps the hook out of the script.
    const bench = workbench('run', [python, '-E', 'flagged.py', '-b', '64'], { minBatch: 16, maxBatch: 16 });
    await expect(runJob(bench.request, bench.deps)).rejects.toMatchObject({
      code: 'OOMTUNE_NO_KNOB',
      message: expect.stringContaining('one optimizer step of 4 micro-batches of 16'),
      remedy: expect.stringContaining('{accumulation}'),
    });
  });

  it('is told where another was asked for, and only the program can know whether it accumulates', async () => {
    const command = [...SCRIPT, '-b', '{micro_batch}'];
    const { report, notes, log } = await run(command, {
      minBatch: 16,
      maxBatch: 16,
      effectiveBatch: 64,
      preset: 'none',
    });
    expect(report.config).toMatchObject({ micro_batch: 16, accumulation: 4 });
    expect(trained(log).steps).toBe(64);
    expect(notes.join('\n')).toMatch(/unless the program reads OOMTUNE_ACCUMULATION it trains on batches of 16/);
  });
});

describe('a batch that flags cut', () => {
  const cwd = mkdtempSync(join(tmpdir(), 'oomtune-flags-'));
  beforeAll(() => cpSync(join(FIXTURES, '..', 'frameworks'), cwd, { recursive: true }));
  afterAll(() => rmSync(cwd, { recursive: true, force: true }));

  it.each([
    [
      'timm',
      ['train.py', '--model', 'resnet18', '-b', '8'],
      /Batch normalisation takes its statistics from each micro-batch/,
    ],
    ['timm', ['train.py', '--model', 'vit_tiny', '-b', '8'], null],
    ['nanogpt', ['train.py', '--dtype=float32'], /nanoGPT's evaluation draws by --batch_size/],
  ])('is told of where it is no sum of its parts: %s %j', async (folder, words, told) => {
    const { report, notes } = await run([python, ...words], {
      ...{ cwd: join(cwd, folder), env: [`PYTHONPATH=${cwd}`], maxBatch: 4 },
    });
    expect(report).toMatchObject({ outcome: 'succeeded', config: { micro_batch: 4 } });
    expect(report.config?.accumulation).toBeGreaterThan(1);
    const said = notes.filter((text) => /statistics|evaluation draws/.test(text));
    expect(said).toEqual(told === null ? [] : [expect.stringMatching(told)]);
  });

  it('is cut by the hook where those that the flags cut hold other data: timm draws augmentations batch by batch', async () => {
    const { report } = await run([python, 'train.py', '--model', 'vit_tiny', '-b', '8'], {
      ...{ cwd: join(cwd, 'timm'), env: [`PYTHONPATH=${cwd}`], maxBatch: 4 },
    });
    expect(report).toMatchObject({ config: { micro_batch: 4, accumulation: 2 }, cut: { cut: 'model' } });
    const seen = readFileSync(join(cwd, 'timm', 'seen'), 'utf8')
      .trim()
      .split('\n');
    expect(JSON.parse(seen.at(-1) as string)).toMatchObject({ batch: 8, accumulation: 1 });
  });

  it('is cut at the model where that is asked for, whatever the flags could do', async () => {
    const words = ['run_clm.py', '--per_device_train_batch_size', '8', '--output_dir', 'out'];
    const { report } = await run([python, ...words], {
      ...{ cwd: join(cwd, 'hf-trainer'), env: [`PYTHONPATH=${cwd}`], maxBatch: 4, cut: 'model' },
    });
    expect(report).toMatchObject({ config: { micro_batch: 4, accumulation: 2 }, cut: { cut: 'model' } });
    const seen = readFileSync(join(cwd, 'hf-trainer', 'seen'), 'utf8')
      .trim()
      .split('\n');
    expect(JSON.parse(seen.at(-1) as string)).toMatchObject({ batch: 8, accumulation: 1 });
  });

  it.each([
    ['off', ['train.py'], [/trains in bf16 by itself; --amp off has it train in float32/]],
    ['auto', ['train.py'], []],
    ['off', ['train.py', '--dtype=float32'], []],
  ] as const)(
    'is told of where --amp %s has it train in another precision than its own: %j',
    async (amp, words, told) => {
      const { report, notes } = await run([python, ...words], {
        ...{ cwd: join(cwd, 'nanogpt'), env: [`PYTHONPATH=${cwd}`], amp },
      });
      expect(report.outcome).toBe('succeeded');
      const said = notes.filter((text) => /by itself/.test(text));
      expect(said).toEqual(told.map((text) => expect.stringMatching(text)));
    },
  );
});
