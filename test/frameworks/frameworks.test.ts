import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Ended, Oomtune, ROOT } from '../cli/oomtune.js';

/** An interpreter with the real packages; empty: they could not be installed, or were not asked for. */
const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (python === '') {
  process.stderr.write(
    'SKIPPED: training with real frameworks, as OOMTUNE_TEST_FRAMEWORKS names no interpreter that has them\n',
  );
}

interface Framework {
  script: string;
  args?: string[];
  /** The script's own batch, batches per step, and the largest micro-batch that the cut run may use. */
  own: number;
  accumulation?: number;
  most: number;
  cut?: string;
}

const TRAINER = '--output_dir out --use_cpu --num_train_epochs 1 --optim sgd --learning_rate 0.05 --save_strategy no';
const FRAMEWORKS: Framework[] = [
  {
    script: 'hf_trainer',
    args: `${TRAINER} --report_to none --per_device_train_batch_size 16`.split(' '),
    own: 16,
    most: 4,
  },
  { script: 'hf_in_script', own: 32, accumulation: 2, most: 8 },
  { script: 'trl_sft', own: 24, most: 6 },
  { script: 'lightning_datamodule', own: 64, most: 16 },
  { script: 'accelerate_loop', own: 96, accumulation: 2, most: 24 },
  { script: 'hydra_app', own: 128, most: 32 },
  // Graphs joined into one have no rows to cut: that is refused unless the loader's cut is asked for.
  { script: 'pyg_graphs', own: 64, most: 16, cut: 'loader' },
  { script: 'web_pipeline', own: 64, most: 16 },
];

/** Largest relative difference of a tensor (norms, in float64) between two files of weights; 0: the same bits. */
const COMPARE = `
import sys, torch
one, other = (torch.load(path) for path in sys.argv[1:])
assert one.keys() == other.keys() and len(one) > 0
difference = lambda a, b: ((a.double() - b.double()).norm() / a.double().norm().clamp_min(1e-12)).item()
same = all(torch.equal(one[name], other[name]) for name in one)
print(0.0 if same else max(max(difference(one[name], other[name]) for name in one), 1e-300))
`;

function difference(...paths: [string, string]): number {
  const done = spawnSync(python, ['-c', COMPARE, ...paths], { encoding: 'utf8' });
  if (done.status !== 0) throw new Error(done.stderr);
  return Number(done.stdout);
}

describe.skipIf(python === '')('an unmodified script of a real framework', () => {
  const oomtune = new Oomtune();
  const folders: string[] = [];
  /** Hubs are not reached here, and would not be asked for anything. */
  const env = { HF_HUB_OFFLINE: '1', TOKENIZERS_PARALLELISM: 'false', HOME: process.env.HOME, PATH: process.env.PATH };

  /** A folder of its own, as the scripts write into the one that they run in. */
  function folder(): string {
    const made = mkdtempSync(join(tmpdir(), 'oomtune-frameworks-'));
    cpSync(join(ROOT, 'test', 'frameworks', 'scripts'), made, { recursive: true });
    folders.push(made);
    return made;
  }

  const command = ({ script, args = [] }: Framework) => [python, `${script}.py`, ...args];

  function alone(framework: Framework): string {
    const cwd = folder();
    const [program, ...args] = command(framework) as [string, ...string[]];
    const done = spawnSync(program, args, { cwd, encoding: 'utf8', env: { ...oomtune.env, ...env } });
    expect(done.status, done.stderr).toBe(0);
    return join(cwd, 'weights.pt');
  }

  async function under(options: string[], framework: Framework): Promise<Ended & { cwd: string }> {
    const cwd = folder();
    const args = ['run', '--device', 'cpu', '--report', 'report.json', ...options, '--', ...command(framework)];
    return { ...(await oomtune.call(args, { cwd, env })), cwd };
  }

  beforeAll(() => {
    const version = spawnSync(python, ['-c', 'import torch; print(torch.__version__)'], { encoding: 'utf8' });
    expect(version.stdout, 'the environment holds a current torch').toMatch(/^2\./);
  });

  afterAll(async () => {
    await oomtune.close();
    for (const made of folders) rmSync(made, { recursive: true, force: true });
  });

  describe.each(FRAMEWORKS)('$script', (framework) => {
    const { own, accumulation = 1, most, script, cut = 'auto' } = framework;
    let bare = '';

    it('trains as it stands to the same bits', async () => {
      bare = alone(framework);
      const { code, stderr, cwd } = await under(['--no-tune'], framework);
      expect(code, stderr).toBe(0);
      expect(difference(bare, join(cwd, 'weights.pt'))).toBe(0);
    }, 300_000);

    it('is cut to fit, and trains to the same weights at its own effective batch', async () => {
      const options = ['--name', `${script}-cut`, '--max-batch', String(most), '--cut', cut];
      const { code, stderr, cwd } = await under(options, framework);
      expect(code, stderr).toBe(0);
      const report = JSON.parse(readFileSync(join(cwd, 'report.json'), 'utf8'));
      expect(report.config.micro_batch).toBeLessThanOrEqual(most);
      expect(report.config.effective_batch).toBe(own * accumulation);
      const other = difference(bare, join(cwd, 'weights.pt'));
      expect(other).toBeLessThan(1e-5);
      expect(other, 'rounding tells that it was cut indeed').toBeGreaterThan(0);
    }, 300_000);
  });
});
