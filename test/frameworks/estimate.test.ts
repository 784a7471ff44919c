import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { estimateReport } from '../../src/contract/estimate.js';
import { Oomtune, PYTHON, ROOT } from '../cli/oomtune.js';
import { QUICK_END } from '../common/quick-end.js';
import { blocks, Reader } from '../guides/page.js';

const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (python === '')
  process.stderr.write('SKIPPED: estimates, as OOMTUNE_TEST_FRAMEWORKS names no interpreter with torch 2.1 or newer\n');

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const GPU_ONLY = join(ROOT, 'test', 'fixtures', 'estimate', 'gpu_only.py');
const TRAINER = join(ROOT, 'test', 'frameworks', 'scripts', 'hf_trainer.py');
const folder = (): string => mkdtempSync(join(oomtune.home, 'cwd-'));
const env = { HF_HUB_OFFLINE: '1', PYTHONPATH: QUICK_END };
const MIB = 1024 ** 2;

async function estimated(args: string[], more: NodeJS.ProcessEnv = {}) {
  const cwd = folder();
  const said = await oomtune.json(['estimate', ...args], { cwd, env: { ...env, ...more } });
  expect(readdirSync(cwd)).toEqual([]);
  expect(oomtune.leftovers()).toEqual([]);
  return estimateReport.parse(said);
}

async function refused(args: string[]): Promise<{ code: string; message: string; exit: number | null }> {
  const { code, stdout } = await oomtune.call(['estimate', '--json', ...args], { cwd: folder(), env });
  return { ...JSON.parse(stdout).error, exit: code };
}

function written(text: string): string {
  const path = join(folder(), 'train.py');
  writeFileSync(path, text);
  return path;
}

describe.skipIf(python === '')('estimate', () => {
  it('does what its guide says', async () => {
    const reader = new Reader();
    reader.program('python', `#!/bin/sh\nexec '${python}' "$@"\n`);
    reader.file('train.py', readFileSync(GPU_ONLY, 'utf8'));
    const { stdout } = await reader.shell(blocks('docs/guides/estimate.md').join('\n'), { env });
    expect(stdout).toMatch(/^H200 +140 GiB +fits +\d+/m);
    await reader.close();
  });

  it('follows a script that insists on a GPU, writes nothing and leaves no process', async () => {
    const report = await estimated(['--card', 'H200', '--card', '1GiB', '--', python, GPU_ONLY]);
    const weights = 97 * 64 + (64 * 192 + 192) + 2 * 64; // tied: the head has none of its own
    expect(report.parameter_bytes).toBe(4 * weights);
    expect(report.gradient_bytes).toBe(4 * weights);
    expect(report.own).toMatchObject({ micro_batch: 16, accumulation: 1 });
    expect(report.followed).toEqual([8, 16, 32]);
    const [h200, small] = report.cards;
    expect(h200).toMatchObject({ name: 'H200', own_fits: true, context_measured: true });
    expect(small).toMatchObject({ total_bytes: 1024 * MIB, own_fits: true, context_measured: false });
    expect(h200?.micro_batch).toBeGreaterThan(100 * (small?.micro_batch ?? 0));
    expect(small?.peak_bytes).toBeLessThan(0.97 * 1024 * MIB);
  });

  it('follows one that takes what there is, by a placeholder, at the sizes that are asked for', async () => {
    const command = [python, GPU_ONLY, '--batch', '{micro_batch}'];
    const report = await estimated(['--card', 'H200', '--micro-batch', '64', '--micro-batch', '128', '--', ...command]);
    expect(report.own).toBeNull();
    const [one, other] = report.asked;
    expect(one?.micro_batch).toBe(64);
    expect(other?.allocated_bytes).toBeGreaterThan(one?.allocated_bytes ?? Number.POSITIVE_INFINITY);
    const alone = await estimated(['--card', 'H200', '--micro-batch', '64', '--', python, GPU_ONLY]);
    expect(Math.abs((one?.allocated_bytes ?? 0) / (alone.asked[0]?.allocated_bytes ?? 1) - 1)).toBeLessThan(0.02);
  });

  it('follows transformers’ Trainer in the precision that it is told', async () => {
    const flags =
      '--output_dir . --num_train_epochs 1 --save_strategy no --report_to none --per_device_train_batch_size 16';
    const command = [python, TRAINER, ...flags.split(' ')];
    const plain = await estimated(['--card', '24GiB', '--micro-batch', '256', '--', ...command]);
    const half = await estimated(['--card', '24GiB', '--micro-batch', '256', '--', ...command, '--bf16']);
    expect(plain.own?.micro_batch).toBe(16);
    expect(half.asked[0]?.allocated_bytes).toBeLessThan(plain.asked[0]?.allocated_bytes ?? 0);
  });

  it('is within 5 % of what ResNet-50 took on an H200', async () => {
    const recorded = readFileSync(join(ROOT, 'bench', 'results', 'search-gpu.jsonl'), 'utf8')
      .trim()
      .split('\n');
    const search = recorded
      .map((line) => JSON.parse(line))
      .find(({ workload, amp, report }) => workload === 'resnet50' && amp === 'bf16' && report);
    const [{ micro_batch, peak_bytes }] = search.report.probes.filter(
      (probe: { micro_batch: number }) => probe.micro_batch > 100,
    );
    const report = await estimated(
      ['--card', 'H200', '--micro-batch', String(micro_batch), '--', python, join(ROOT, 'bench/workloads/resnet50.py')],
      { WORKLOAD_AMP: 'bf16', PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True' },
    );
    expect(Math.abs((report.asked[0]?.peak_bytes ?? 0) / peak_bytes - 1)).toBeLessThan(0.05);
  });

  it('shows a table, and what it cannot know', async () => {
    const { code, stdout } = await oomtune.call(['estimate', '--', python, join(ROOT, 'examples', 'mlp.py')], {
      cwd: folder(),
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^CARD +MEMORY +ITS OWN BATCH +LARGEST +PEAK$/m);
    expect(stdout).toMatch(/^RTX 4090 +24 GiB +fits +\d+ +\d\S* GiB$/m);
    expect(stdout).toContain('not known without a GPU');
  });

  it('says why it has no answer', async () => {
    const cases = {
      'a script that trains nothing': ['print("hello")', 'OOMTUNE_JOB_FAILED', /no training with PyTorch was seen/],
      'one that fails': ['import torch\nraise ValueError("no such data")', 'OOMTUNE_JOB_FAILED', /no such data/],
      'one that stays on the host': [
        readFileSync(join(ROOT, 'examples', 'mlp.py'), 'utf8').replace(
          '"cuda" if torch.cuda.is_available() else "cpu"',
          '"cpu"',
        ),
        'OOMTUNE_NOT_ESTIMATED',
        /puts nothing on a GPU/,
      ],
    } as const;
    for (const [what, [text, code, message]] of Object.entries(cases)) {
      const error = await refused(['--', python, written(text)]);
      expect({ what, code: error.code, exit: error.exit }).toEqual({ what, code, exit: 4 });
      expect(error.message).toMatch(message);
    }
    expect((await refused(['--card', 'RTX 9999', '--', python, GPU_ONLY])).code).toBe('OOMTUNE_USAGE');
    expect((await refused(['--micro-batch', 'x', '--', python, GPU_ONLY])).code).toBe('OOMTUNE_USAGE');
    const several = ['-m', 'torch.distributed.run', '--nproc-per-node', '2', GPU_ONLY];
    expect((await refused(['--', python, ...several])).code).toBe('OOMTUNE_NOT_ESTIMATED');
    expect(oomtune.leftovers()).toEqual([]);
  });

  it('asks for a newer torch where memory cannot be followed', async () => {
    const { code, message } = await refused(['--', PYTHON, join(ROOT, 'examples', 'mlp.py')]);
    if (message === undefined)
      process.stderr.write('SKIPPED: the other interpreter has a torch that can be followed\n');
    else
      expect({ code, message }).toMatchObject({
        code: 'OOMTUNE_NOT_ESTIMATED',
        message: expect.stringContaining('2.1'),
      });
  });
});
