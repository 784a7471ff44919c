import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune } from '../cli/oomtune.js';
import { filled } from '../presets/project.js';
import { asked, done, type Place, placeOf, readyPlaceOf, there } from './entry-points.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

describe('what a preset writes is what the installed entry point reads', () => {
  it.skipIf(!there('torchtune'))(
    'torchtune',
    async () => {
      const at = placeOf('torchtune');
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
    900_000,
  );

  it.skipIf(!there('litgpt'))(
    'litgpt',
    async () => {
      const at = placeOf('litgpt');
      const command = 'litgpt finetune_lora checkpoint/eleutherai/pythia-14m --data JSON --data.json_path rows.json';
      const { argv } = await filled(command, { micro_batch: 5, accumulation: 3, amp: 'fp16' }, at);
      const config = done([...argv, '--print_config'], at);
      expect(config).toMatch(/^ {2}micro_batch_size: 5$/m);
      expect(config).toMatch(/^ {2}global_batch_size: 15$/m);
      expect(config).toMatch(/^precision: 16-mixed$/m);
    },
    900_000,
  );

  it.skipIf(!there('axolotl'))(
    'axolotl',
    async () => {
      const at = placeOf('axolotl');
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
    900_000,
  );

  it.skipIf(!there('deepspeed'))(
    'deepspeed',
    async () => {
      const at = placeOf('deepspeed');
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
    900_000,
  );

  it.skipIf(!there('torchtitan'))(
    'torchtitan, up to where it asks for a GPU',
    async () => {
      const at = placeOf('torchtitan');
      const command = 'python -m torchtitan.train --module llama3 --config llama3_debugmodel --comm.mode local_tensor';
      const knobs = { micro_batch: 5, accumulation: 3, amp: 'off', checkpointing: true } as const;
      const { argv } = await filled(command, knobs, at);
      // Its module as `python -m` starts it, with a look at what it made of its arguments.
      const start = `
import json, runpy, sys
from torchtitan.config import ConfigManager
parse, read = ConfigManager.parse_args, []
ConfigManager.parse_args = lambda self, *args: read.append(parse(self, *args)) or read[0]
runpy.run_module("torchtitan.train", run_name="__main__", alter_sys=True)
cfg = read[0].training
print(json.dumps([cfg.local_batch_size, cfg.global_batch_size, cfg.mixed_precision_param, type(read[0].activation_checkpoint).__qualname__]))`;
      expect(asked(at, start, argv.slice(3))).toEqual([5, 15, 'float32', 'FullAC.Config']);
    },
    900_000,
  );
});

/** What trains by its own console script: its command at a batch of 64, the file or folder of its weights, and what cuts it to 16 × 4. */
const TRAINED = [
  {
    name: 'torchtune',
    command: 'tune run full_finetune_single_device --config tune_tiny.yaml',
    weights: 'out/epoch_0',
    cutBy: 'run',
  },
  {
    name: 'litgpt',
    command:
      'litgpt finetune_lora checkpoint/eleutherai/pythia-14m --data JSON --data.json_path rows.json --data.val_split_fraction 0.05 --out_dir out --precision 32-true --train.global_batch_size 64 --train.max_steps 3 --train.epochs 1 --eval.initial_validation false --eval.final_validation false --lora_dropout 0.0 --train.micro_batch_size 64',
    weights: 'out/final',
    // A start takes half a minute: what it does after its short training, reading the file that it wrote, test/worker/scripts.test.ts has a script for.
    cutBy: null,
  },
  {
    name: 'fairseq',
    command:
      'fairseq-train bin --task language_modeling --arch transformer_lm --decoder-embed-dim 64 --decoder-ffn-embed-dim 128 --decoder-layers 2 --decoder-attention-heads 2 --tokens-per-sample 64 --sample-break-mode eos --batch-size 64 --optimizer sgd --lr 0.05 --dropout 0 --max-epoch 3 --cpu --disable-validation --no-epoch-checkpoints --save-dir out',
    weights: 'out',
    // A search leaves no checkpoint behind that this one would go on from.
    cutBy: 'run',
  },
  {
    name: 'llama-factory',
    command: 'llamafactory-cli train train.yaml',
    weights: 'out',
    // Started three times more a search costs half a minute of CPU; what the search does is what it does with the Trainer's own scripts.
    cutBy: 'preset',
  },
] as const;

const COMPARE = `
import json, sys, torch
def read(path):
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file
        return load_file(path)
    kept = torch.load(path)
    # fairseq's _float_tensor is memory that nobody writes: it only stands for the device and the type.
    return {k: v for k, v in kept.get("model", kept).items() if torch.is_tensor(v) and not k.endswith("._float_tensor")}
a, b = (read(path) for path in sys.argv[1:])
assert a.keys() == b.keys() and len(a) > 0
print(json.dumps(max(((a[k].double() - b[k].double()).norm() / a[k].double().norm().clamp_min(1e-12)).item() for k in a)))`;

describe.each(TRAINED.filter(({ name }) => there(name)))('$name by its console script', (one) => {
  const words = one.command.split(' ');

  function weights(at: Place): string {
    const folder = join(at.cwd, one.weights);
    const file = readdirSync(folder).find((name) => /\.(pth?|pt|lora|safetensors|bin)$/.test(name));
    expect(file, readdirSync(folder).join()).toBeTruthy();
    return join(folder, file as string);
  }

  async function run(at: Place, ...options: string[]) {
    const args = ['run', '--device', 'cpu', '--report', 'report.json', ...options, '--', ...words];
    const { code, stderr } = await oomtune.call(args, { cwd: at.cwd, env: at.env });
    expect(code, stderr).toBe(0);
    return JSON.parse(readFileSync(join(at.cwd, 'report.json'), 'utf8'));
  }

  it(`trains as it stands${one.cutBy === null ? '' : ', and in smaller micro-batches by its own flags to the same weights'}`, async () => {
    const whole = readyPlaceOf(one.name);
    await run(whole, '--no-tune');
    if (one.cutBy === null) return;
    const cut = readyPlaceOf(one.name);
    if (one.cutBy === 'run') {
      const { config } = await run(cut, '--max-batch', '16', '--exact', '--checkpointing', 'off');
      expect(config.micro_batch).toBeLessThanOrEqual(16);
      expect(config.effective_batch).toBe(64);
    } else {
      const knobs = { micro_batch: 16, accumulation: 4, checkpointing: false };
      done((await filled(words, knobs, { ...cut, launchDir: cut.cwd })).argv, cut);
    }
    const difference = asked(whole, COMPARE, [weights(whole), weights(cut)]);
    expect(difference).toBeLessThan(1e-3);
    expect(difference, 'rounding tells that it was cut indeed').toBeGreaterThan(0);
  }, 900_000);
});
