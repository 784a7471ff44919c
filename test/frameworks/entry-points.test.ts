import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune, ROOT } from '../cli/oomtune.js';
import { filled } from '../presets/project.js';

/** An interpreter with the frameworks' packages, and the folders of console scripts beside it: `NAME=FOLDER`, with commas. */
const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
const folders = new Map(
  (process.env.OOMTUNE_TEST_ENTRY_POINTS ?? '')
    .split(',')
    .filter(Boolean)
    .map((one) => one.split('=') as [string, string]),
);
const HERE = join(import.meta.dirname, 'entry-points');
const pinned = readdirSync(HERE).flatMap((file) => (file.endsWith('.txt') ? [file.replace(/\.txt$/, '')] : []));
for (const name of pinned.filter((one) => python === '' || !folders.has(one))) {
  process.stderr.write(
    `SKIPPED: ${name} by its console script: ${python === '' ? 'OOMTUNE_TEST_FRAMEWORKS names no interpreter' : 'it could not be installed (`node scripts/setup/entry-points.mjs`)'}\n`,
  );
}
process.stderr.write(
  'SKIPPED: fairseq-train, as fairseq 0.12.2 (its newest) cannot be imported by Python 3.11 and newer; llamafactory-cli, as LLaMA-Factory 0.9.5 asks for a transformers, a TRL and a torchaudio that are older than the pinned torch can have\n',
);

const made: string[] = [];
const oomtune = new Oomtune();
afterAll(async () => {
  await oomtune.close();
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
});

const there = (name: string) => python !== '' && folders.has(name);
const packages = () =>
  spawnSync(python, ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'], {
    encoding: 'utf8',
  }).stdout.trim();

/** A folder with what an entry point reads, made by the script that stands beside its list. */
function folder(name: string): { cwd: string; env: NodeJS.ProcessEnv; bin: string } {
  const cwd = mkdtempSync(join(tmpdir(), 'oomtune-entry-'));
  made.push(cwd);
  cpSync(HERE, cwd, { recursive: true });
  const bin = folders.get(name) as string;
  const env = {
    PATH: `${bin}:${process.env.PATH}`,
    HOME: process.env.HOME,
    PYTHONPATH: `${packages()}:${cwd}`,
    HF_HUB_OFFLINE: '1',
    CUDA_VISIBLE_DEVICES: '',
    OMP_NUM_THREADS: '1',
  };
  return { cwd, env, bin };
}

function done(words: string[], at: ReturnType<typeof folder>, timeout = 240_000): string {
  const [program, ...args] = words as [string, ...string[]];
  const run = spawnSync(join(at.bin, program), args, { cwd: at.cwd, env: at.env, encoding: 'utf8', timeout });
  expect(run.status, run.stderr.slice(-2000)).toBe(0);
  return run.stdout;
}

const asked = (at: ReturnType<typeof folder>, program: string, args: string[] = []) =>
  JSON.parse(
    done(['python', '-c', program, ...args], at)
      .trim()
      .split('\n')
      .at(-1) as string,
  );

describe('what a preset writes is what the installed entry point reads', () => {
  it.skipIf(!there('torchtune'))(
    'torchtune',
    async () => {
      const at = folder('torchtune');
      const command = 'tune run full_finetune_single_device --config tune_tiny.yaml';
      const { argv } = await filled(command, { micro_batch: 5, accumulation: 3, checkpointing: true }, at);
      const read = `
import json, sys
from torchtune.config._parse import TuneRecipeArgumentParser
from torchtune.config._utils import _merge_yaml_and_cli_args
cfg = _merge_yaml_and_cli_args(*TuneRecipeArgumentParser().parse_known_args(sys.argv[1:]))
print(json.dumps([cfg.batch_size, cfg.gradient_accumulation_steps, cfg.enable_activation_checkpointing]))`;
      expect(asked(at, read, argv.slice(3))).toEqual([5, 3, true]);
      const recipe = done(['tune', 'cat', 'llama2/7B_full_low_memory'], at);
      for (const key of ['batch_size', 'gradient_accumulation_steps', 'enable_activation_checkpointing', 'dtype'])
        expect(recipe).toMatch(new RegExp(`^${key}:`, 'm'));
    },
    300_000,
  );

  it.skipIf(!there('litgpt'))(
    'litgpt',
    async () => {
      const at = folder('litgpt');
      const command = 'litgpt finetune_lora checkpoint/eleutherai/pythia-14m --data JSON --data.json_path rows.json';
      const { argv } = await filled(command, { micro_batch: 5, accumulation: 3, amp: 'fp16' }, at);
      const config = done([...argv, '--print_config'], at);
      expect(config).toMatch(/^ {2}micro_batch_size: 5$/m);
      expect(config).toMatch(/^ {2}global_batch_size: 15$/m);
      expect(config).toMatch(/^precision: 16-mixed$/m);
    },
    300_000,
  );

  it.skipIf(!there('axolotl'))(
    'axolotl',
    async () => {
      const at = folder('axolotl');
      writeFileSync(join(at.cwd, 'config.yml'), 'base_model: model\nmicro_batch_size: 2\n');
      const { argv } = await filled(
        'axolotl train config.yml --micro-batch-size 2 --gradient-accumulation-steps 2',
        { micro_batch: 5, accumulation: 3, amp: 'fp16', checkpointing: true },
        { ...at, launchDir: at.cwd },
      );
      expect(argv.join(' ')).toContain('--micro-batch-size 5 --gradient-accumulation-steps 3');
      const help = done(['axolotl', 'train', '--help'], at);
      for (const flag of [
        '--micro-batch-size',
        '--gradient-accumulation-steps',
        '--gradient-checkpointing',
        '--bf16',
        '--fp16',
      ])
        expect(help).toContain(flag);
      const file = argv.find((one) => one.endsWith('.yml')) as string;
      expect(readFileSync(join(at.cwd, file.replace(`${at.cwd}/`, '')), 'utf8')).toMatch(
        /gradient_checkpointing: true/,
      );
    },
    300_000,
  );

  it.skipIf(!there('deepspeed'))(
    'deepspeed',
    async () => {
      const at = folder('deepspeed');
      writeFileSync(join(at.cwd, 'train.py'), 'import deepspeed\n');
      writeFileSync(join(at.cwd, 'ds.json'), '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8}');
      const command = 'deepspeed --num_gpus 1 train.py --deepspeed --deepspeed_config ds.json';
      const { argv } = await filled(command, { micro_batch: 5, accumulation: 3 }, { ...at, launchDir: at.cwd });
      const read = `
import json, sys
from deepspeed.runtime.config import DeepSpeedConfig
cfg = DeepSpeedConfig(sys.argv[1])
print(json.dumps([cfg.train_micro_batch_size_per_gpu, cfg.gradient_accumulation_steps, cfg.train_batch_size]))`;
      expect(asked(at, read, [argv.at(-1) as string])).toEqual([5, 3, 15]);
      expect(done(['deepspeed', '--help'], at)).toContain('--num_gpus');
    },
    300_000,
  );
});

/** What trains by its own console script: its command at a batch of 64, the weights that it keeps, whether it is cut, too. */
const TRAINED = [
  {
    name: 'torchtune',
    makes: 'tune_tiny.py',
    command: 'tune run full_finetune_single_device --config tune_tiny.yaml',
    weights: ['out', 'epoch_0'],
    cut: true,
  },
  {
    name: 'litgpt',
    makes: 'litgpt_tiny.py',
    command:
      'litgpt finetune_lora checkpoint/eleutherai/pythia-14m --data JSON --data.json_path rows.json --data.val_split_fraction 0.05 --out_dir out --precision 32-true --train.global_batch_size 64 --train.max_steps 3 --train.epochs 1 --eval.initial_validation false --eval.final_validation false --lora_dropout 0.0 --train.micro_batch_size 64',
    weights: ['out', 'final'],
    // A start takes half a minute: what it does after its short training, reading the file that it wrote, test/worker/scripts.test.ts has a script for.
    cut: false,
  },
];

describe.each(TRAINED.filter(({ name }) => there(name)))('$name by its console script', (one) => {
  const trained: string[] = [];

  async function trains(...options: string[]) {
    const at = folder(one.name);
    done(['python', one.makes], at);
    const args = ['run', '--device', 'cpu', '--report', 'report.json', ...options, '--', ...one.command.split(' ')];
    const { code, stderr } = await oomtune.call(args, { cwd: at.cwd, env: at.env });
    expect(code, stderr).toBe(0);
    const kept = join(at.cwd, ...one.weights);
    const file = existsSync(kept)
      ? readdirSync(kept).find((name) => /\.(pth?|pt|lora|safetensors|bin)$/.test(name))
      : null;
    expect(file, readdirSync(join(at.cwd, 'out')).join()).toBeTruthy();
    trained.push(join(kept, file as string));
    return JSON.parse(readFileSync(join(at.cwd, 'report.json'), 'utf8'));
  }

  it(`trains as it stands${one.cut ? ', and cut to a smaller micro-batch by its own flag at the same effective batch' : ''}`, async () => {
    await trains('--no-tune');
    if (!one.cut) return;
    const { config } = await trains('--max-batch', '16', '--exact', '--checkpointing', 'off');
    expect(config.micro_batch).toBeLessThanOrEqual(16);
    expect(config.effective_batch).toBe(64);
    const [whole, cut] = trained as [string, string];
    const compare = `
import json, sys, torch
def tensors(value):
    return {k: v for k, v in (value.get("model", value)).items() if torch.is_tensor(v)}
def read(path):
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file
        return load_file(path)
    return tensors(torch.load(path, weights_only=False))
a, b = (read(path) for path in sys.argv[1:])
assert a.keys() == b.keys() and len(a) > 0
print(json.dumps(max(((a[k].double() - b[k].double()).norm() / a[k].double().norm().clamp_min(1e-12)).item() for k in a)))`;
    expect(asked(folder(one.name), compare, [whole, cut])).toBeLessThan(1e-3);
  }, 900_000);
});

it('all lists that are pinned are started here', () => {
  const text = readFileSync(join(ROOT, 'test', 'frameworks', 'entry-points.test.ts'), 'utf8');
  for (const name of pinned) expect(text).toContain(`there('${name}')`);
});
