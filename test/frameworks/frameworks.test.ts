import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oomtune, ROOT } from '../cli/oomtune.js';

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
  /** The console script that is started in place of `script`; `script`_data.py, if there is one, makes what it reads, `script`_weights.py reads what it kept. */
  console?: string;
  /** The script's own batch, and batches per step. */
  own: number;
  accumulation?: number;
  /** Less than the script's own batch takes; where none is named, `most` is the largest micro-batch that the cut run may use. */
  budget?: string;
  most?: number;
  /** How the batch is said without the hook; else by the environment's BATCH. */
  flag?: string;
  /** By how many per cent more than the largest size does not fit, where memory grows evenly enough for less than 10; null: samples differ in size, or it does not. */
  beyond?: 2 | null;
  cut?: string;
  /** Its models take statistics of each micro-batch: a cut run ends at other weights, which is told. */
  normalises?: boolean;
}

const TRAINER = '--output_dir out --use_cpu --num_train_epochs 1 --optim sgd --learning_rate 0.05 --save_strategy no';
const CLI =
  '--trainer.accelerator cpu --trainer.max_epochs 2 --trainer.logger false --trainer.enable_checkpointing false';
const TRL =
  '--model_name_or_path model --dataset_name rows --output_dir out --use_cpu --bf16 False --num_train_epochs 1 --optim sgd --learning_rate 0.05 --save_strategy no --report_to none --per_device_train_batch_size 48';
const YOLO =
  'model=tiny.yaml data=squares.yaml epochs=2 imgsz=64 nbs=32 device=cpu workers=0 plots=False amp=False val=False optimizer=SGD';
const FRAMEWORKS: Framework[] = [
  {
    script: 'hf_trainer',
    args: `${TRAINER} --report_to none --per_device_train_batch_size 16`.split(' '),
    own: 16,
    budget: '30MiB',
    flag: '--per_device_train_batch_size ',
    beyond: 2,
  },
  { script: 'hf_in_script', own: 32, accumulation: 2, budget: '40MiB', beyond: null },
  { script: 'hf_packed', own: 128, budget: '80MiB', beyond: 2 },
  { script: 'hf_seq2seq', own: 64, budget: '40MiB' },
  { script: 'trl_sft', own: 24, most: 6 },
  { script: 'trl_dpo', own: 24, most: 6 },
  { script: 'lightning_datamodule', own: 64, most: 16 },
  { script: 'lightning_manual', own: 4096, budget: '55MiB' },
  {
    script: 'lightning_cli',
    args: `fit ${CLI} --data.batch_size 4096`.split(' '),
    own: 4096,
    budget: '60MiB',
    flag: '--data.batch_size ',
    beyond: 2,
  },
  { script: 'trl_console', console: 'trl', args: `sft ${TRL}`.split(' '), own: 48, most: 12 },
  { script: 'accelerate_loop', own: 96, accumulation: 2, most: 24 },
  {
    script: 'accelerate_launch',
    console: 'accelerate',
    args: `launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no accelerate_loop.py`.split(
      ' ',
    ),
    own: 96,
    accumulation: 2,
    most: 24,
  },
  {
    script: 'torchrun',
    console: 'torchrun',
    args: '--standalone --nproc-per-node 1 accelerate_loop.py'.split(' '),
    own: 96,
    accumulation: 2,
    most: 24,
  },
  {
    script: 'yolo',
    console: 'yolo',
    args: `detect train ${YOLO} batch=32`.split(' '),
    own: 32,
    budget: '60MiB',
    flag: 'batch=',
    beyond: 2,
    normalises: true,
  },
  { script: 'timm_loop', own: 96, budget: '65MiB', beyond: null },
  { script: 'torchvision_detection', own: 96, budget: '40MiB', beyond: null },
  { script: 'hydra_app', own: 128, most: 32 },
  // Graphs joined into one have no rows to cut: that is refused unless the loader's cut is asked for.
  { script: 'pyg_graphs', own: 64, most: 16, cut: 'loader' },
  { script: 'web_pipeline', own: 64, most: 16 },
  { script: 'ppo_minibatches', own: 8192, budget: '90MiB' },
  { script: 'lbfgs_loop', own: 4096, budget: '100MiB', beyond: null },
  { script: 'gan_loop', own: 4096, budget: '80MiB' },
  { script: 'torch_compile', own: 1024, most: 256 },
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
  const env = {
    HF_HUB_OFFLINE: '1',
    TOKENIZERS_PARALLELISM: 'false',
    YOLO_OFFLINE: 'true',
    YOLO_CONFIG_DIR: oomtune.home,
    HOME: process.env.HOME,
    PATH: process.env.PATH,
  };

  function helped(script: string, cwd: string): void {
    if (!existsSync(join(ROOT, 'test', 'frameworks', 'scripts', `${script}.py`))) return;
    const done = spawnSync(python, [`${script}.py`], { cwd, encoding: 'utf8', env: { ...oomtune.env, ...env } });
    expect(done.status, done.stderr).toBe(0);
  }

  /** A folder of its own, as the scripts write into the one that they run in. */
  function folder({ script }: Framework): string {
    const made = mkdtempSync(join(tmpdir(), 'oomtune-frameworks-'));
    cpSync(join(ROOT, 'test', 'frameworks', 'scripts'), made, { recursive: true });
    folders.push(made);
    helped(`${script}_data`, made);
    return made;
  }

  function weightsOf({ script }: Framework, cwd: string): string {
    helped(`${script}_weights`, cwd);
    return join(cwd, 'weights.pt');
  }

  const programOf = ({ script, console: program }: Framework): string[] =>
    program === undefined ? [python, `${script}.py`] : [join(dirname(python), program)];

  /** Its command at a batch of its own, without oomtune's means, and what the environment says of it. */
  function sized(framework: Framework, batch: number): { command: string[]; env: NodeJS.ProcessEnv } {
    const { args = [], flag } = framework;
    const program = programOf(framework);
    if (flag === undefined) return { command: [...program, ...args], env: { ...env, BATCH: String(batch) } };
    const said = [...args, ...`${flag}${batch}`.split(' ')]; // the last one counts
    return { command: [...program, ...said], env };
  }

  const command = (framework: Framework) => [...programOf(framework), ...(framework.args ?? [])];

  function alone(framework: Framework): string {
    const cwd = folder(framework);
    const [program, ...args] = command(framework) as [string, ...string[]];
    const done = spawnSync(program, args, { cwd, encoding: 'utf8', env: { ...oomtune.env, ...env } });
    expect(done.status, done.stderr).toBe(0);
    return weightsOf(framework, cwd);
  }

  const reported = (cwd: string) => JSON.parse(readFileSync(join(cwd, 'report.json'), 'utf8'));

  /** Whether a batch fits the budget in a process of its own that knows nothing of the hook. */
  async function fits(framework: Framework, batch: number): Promise<boolean> {
    const cwd = folder(framework);
    const { command, env } = sized(framework, batch);
    const options = ['--no-tune', '--preset', 'none', '--device', 'cpu', '--budget', framework.budget as string];
    const ended = await oomtune.call(['run', ...options, '--report', 'report.json', '--', ...command], { cwd, env });
    const { outcome, failure } = reported(cwd);
    if (outcome !== 'succeeded') expect(failure?.class, ended.stderr).toBe('device_oom');
    return outcome === 'succeeded';
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
    const { own, accumulation = 1, budget, most = own, script, beyond = 10, cut = 'auto' } = framework;
    const bound = budget === undefined ? ['--max-batch', String(most)] : ['--budget', budget];
    const options = ['--name', script, '--device', 'cpu', '--cut', cut, ...bound];
    let bare = '';
    let searched: { cwd: string; found: number } | null = null;

    it('trains as it stands to the same bits', async () => {
      bare = alone(framework);
      const cwd = folder(framework);
      const args = ['run', '--no-tune', '--device', 'cpu', '--', ...command(framework)];
      const { code, stderr } = await oomtune.call(args, { cwd, env });
      expect(code, stderr).toBe(0);
      expect(difference(bare, weightsOf(framework, cwd))).toBe(0);
    }, 300_000);

    it.runIf(budget)(
      `gets an answer that holds in a fresh process${beyond === null ? '' : `, and ${beyond} % above the largest does not`}`,
      async () => {
        const cwd = folder(framework);
        const args = ['find-batch', '--json', ...options, '--', ...command(framework)];
        const { stdout, stderr } = await oomtune.call(args, { cwd, env });
        const { status, max_micro_batch: found, config } = JSON.parse(stdout);
        expect(status, stderr).toBe('found');
        searched = { cwd, found };
        expect(found).toBeLessThan(own);
        expect(await fits(framework, config.micro_batch), `${config.micro_batch}`).toBe(true);
        if (beyond === null) return;
        const more = found + Math.max(1, Math.ceil((found * beyond) / 100));
        expect(await fits(framework, more), `${more}`).toBe(false);
      },
      300_000,
    );

    it('is cut to fit, and trains to the same weights at its own effective batch', async () => {
      // where it was searched before, `run` takes what was recorded there
      const cwd = searched?.cwd ?? folder(framework);
      const args = ['run', ...options, '--report', 'report.json', '--', ...command(framework)];
      const { code, stderr } = await oomtune.call(args, { cwd, env });
      expect(code, stderr).toBe(0);
      const { config } = reported(cwd);
      expect(config.micro_batch).toBeLessThanOrEqual(searched?.found ?? most);
      expect(config.effective_batch).toBe(own * accumulation);
      const other = difference(bare, weightsOf(framework, cwd));
      if (framework.normalises) {
        expect(stderr).toContain('Batch normalisation takes its statistics from each micro-batch');
        return;
      }
      expect(other).toBeLessThan(1e-5);
      expect(other, 'rounding tells that it was cut indeed').toBeGreaterThan(0);
    }, 300_000);
  });
});
