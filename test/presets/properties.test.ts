import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { defaultName, digest, fill } from '../../src/worker/command/index.js';
import { appliedFolder } from '../../src/worker/key.js';
import { presetFiles, readPreset } from '../../src/worker/presets/load.js';
import { config, plan, project } from './project.js';
import { DEEPSPEED, DIFFUSERS, HF, IMAGENET, LIGHTNING, NANOGPT, PLAIN, TIMM } from './scripts.js';

const cwd = project({
  'run_clm.py': HF,
  'train.py': TIMM,
  'gpt/train.py': NANOGPT,
  'gpt/conf.py': 'batch_size = 16\n',
  'main.py': IMAGENET,
  'lit.py': LIGHTNING,
  'diff.py': DIFFUSERS,
  'ds.py': DEEPSPEED,
  'ds.json': '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}',
  'ax.yml': 'micro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\nsequence_len: 512\n',
  'ax2.yml': '# other knobs\nmicro_batch_size: 9\nbf16: false\nsequence_len: 512\n',
  'ax3.yml': 'micro_batch_size: 2\nsequence_len: 1024\n',
  'lf.yaml': 'per_device_train_batch_size: 1\nbf16: true\n',
  'plain.py': PLAIN,
});

/** Commands of each entry point; every knob that they carry is said. */
const COMMANDS: Record<string, (batch: number, times: number) => string> = {
  'hf-trainer': (b, a) =>
    `python run_clm.py --per_device_train_batch_size ${b} --gradient_accumulation_steps=${a} --bf16 --do_train`,
  trl: (b, a) =>
    `trl sft --model_name_or_path m --per_device_train_batch_size ${b} --gradient_accumulation_steps ${a} --bf16 True`,
  litgpt: (b, a) =>
    `litgpt finetune_lora m --devices 2 --train.micro_batch_size ${b} --train.global_batch_size=${2 * b * a} --precision bf16-mixed`,
  timm: (b, a) =>
    `torchrun --nproc_per_node=2 train.py /data -b${b} --grad-accum-steps ${a} --amp --amp-dtype bfloat16`,
  nanogpt: (b, a) =>
    `torchrun --nproc_per_node=2 gpt/train.py gpt/conf.py --batch_size=${b} --gradient_accumulation_steps=${2 * a} --dtype=float32`,
  'pytorch-imagenet': (b) => `python main.py --batch-size ${b} /data`,
  'lightning-cli': (b, a) =>
    `python lit.py fit --data.batch_size=${b} --trainer.accumulate_grad_batches ${a} --trainer.precision 16-mixed`,
  ultralytics: (b, a) => `yolo train batch=${2 * b} nbs=${2 * b * a} device=0,1 amp=True`,
  torchtitan: (b, a) =>
    `torchrun --nproc_per_node=2 -m torchtitan.train --training.local_batch_size ${b} --training.global_batch_size ${2 * b * a} --training.mixed_precision_param bfloat16 --activation_checkpoint.mode full`,
  torchtune: (b, a) =>
    `tune run --nproc_per_node 2 r --config x batch_size=${b} gradient_accumulation_steps=${a} dtype=bf16 enable_activation_checkpointing=False`,
  axolotl: (b, a) => `axolotl train ax.yml --micro-batch-size ${b} --gradient-accumulation-steps ${a}`,
  'llama-factory': (b, a) =>
    `llamafactory-cli train --stage sft --per_device_train_batch_size ${b} --gradient_accumulation_steps ${a} --bf16 true`,
  fairseq: (b, a) => `fairseq-train bin --max-sentences ${b} --update-freq ${a} --fp16`,
  accelerate: (b, a) =>
    `python diff.py --train_batch_size ${b} --gradient_accumulation_steps=${a} --mixed_precision no`,
};

describe.each(Object.entries(COMMANDS))('%s', (name, command) => {
  const size = fc.integer({ min: 1, max: 5000 });
  const times = fc.integer({ min: 1, max: 64 });

  test('filling in what the command has by itself changes nothing', async () => {
    await fc.assert(
      fc.asyncProperty(size, times, async (b, a) => {
        const argv = command(b, a).split(' ');
        const made = await plan(argv, { cwd });
        expect(made.preset).toBe(name);
        const { own, worldSize } = made;
        expect(own.microBatch).toBe(b);
        if (made.carriers.accumulation === 'preset') expect(own.accumulation).toBe(a);
        const knobs = config({
          micro_batch: b,
          accumulation: own.accumulation ?? 1,
          world_size: worldSize ?? 1,
          amp: own.amp ?? 'off',
          checkpointing: own.checkpointing ?? false,
        });
        expect((await fill(made, knobs, { launchDir: null })).argv).toEqual(argv);
      }),
      { numRuns: 40 },
    );
  });

  test('what is filled in is what is read back', async () => {
    await fc.assert(
      fc.asyncProperty(size, times, size, times, fc.nat(), fc.boolean(), async (b, a, b2, a2, kind, on) => {
        const made = await plan(command(b, a), { cwd });
        const knobs = config({
          micro_batch: b2,
          accumulation: made.carriers.accumulation === 'preset' ? a2 : 1,
          world_size: made.worldSize ?? 1,
          amp: made.supports.amp[kind % made.supports.amp.length],
          checkpointing: made.supports.checkpointing.includes(on) ? on : made.supports.checkpointing[0],
        });
        const { argv } = await fill(made, knobs, { launchDir: null });
        const again = await plan(argv, { cwd });
        expect(again.own.microBatch).toBe(b2);
        for (const knob of ['accumulation', 'amp', 'checkpointing'] as const) {
          // Knobs that live in a file alone are in its copy, which was not asked for here.
          if (made.carriers[knob] === 'preset' && name !== 'axolotl') expect(again.own[knob]).toBe(knobs[knob]);
        }
        // Filling twice is filling once.
        expect((await fill(again, knobs, { launchDir: null })).argv).toEqual(argv);
      }),
      { numRuns: 40 },
    );
  });

  test('the digest does not depend on the tuned values', async () => {
    await fc.assert(
      fc.asyncProperty(size, times, size, times, async (b, a, b2, a2) => {
        const one = await plan(command(b, a), { cwd });
        const other = await plan(command(b2, a2), { cwd });
        expect(digest(one)).toBe(digest(other));
        const more = await plan(`${command(b, a)} --seed=3`, { cwd });
        expect(digest(more)).not.toBe(digest(one));
      }),
      { numRuns: 15 },
    );
  });
});

describe('digest and name', () => {
  const of = async (command: string, folder = cwd) => digest(await plan(command, { cwd: folder }));

  test('a flag that is absent, short or long gives the same', async () => {
    const [first, ...rest] = await Promise.all(
      ['', ' -b 8', ' --batch-size=548', ' --amp --amp-dtype bfloat16', ' --grad-checkpointing'].map((x) =>
        of(`python train.py /d${x}`),
      ),
    );
    for (const other of rest) expect(other).toBe(first);
    expect(await of('python train.py /e')).not.toBe(first);
  });

  test('a script that no preset knows: its batch flags do not count either', async () => {
    const first = await of('python plain.py --batch-size 8 --lr 1');
    expect(await of('python plain.py --batch_size=548 --lr 1')).toBe(first);
    expect(await of('python plain.py --lr 1')).toBe(first);
    expect(await of('python plain.py --lr 2')).not.toBe(first);
  });

  test('configuration files count by content, tuned keys and comments aside', async () => {
    const first = await of('axolotl train ax.yml');
    expect(await of('axolotl train ax2.yml')).toBe(first);
    expect(await of('axolotl train ax3.yml')).not.toBe(first);
  });

  test('the same relative name in two folders is two scripts; an absolute path to one is the same', async () => {
    const other = project({ 'plain.py': PLAIN });
    expect(await of('python plain.py', other)).not.toBe(await of('python plain.py'));
    expect(await of(`python ${cwd}/plain.py`)).toBe(await of('python plain.py'));
  });

  test('the name is the stem and eight hex digits', async () => {
    const made = await plan('python plain.py', { cwd });
    expect(defaultName(made)).toBe(`plain-${digest(made).slice(0, 8)}`);
    expect(digest(made)).toMatch(/^[0-9a-f]{64}$/);
    expect(defaultName(await plan('python -m pkg.train'))).toMatch(/^train-[0-9a-f]{8}$/);
    expect(defaultName(await plan('yolo train batch=8'))).toMatch(/^yolo-[0-9a-f]{8}$/);
    expect(defaultName(await plan(['python', 'src/größe 模型.py']))).toMatch(/^größe-模型-[0-9a-f]{8}$/);
    expect(appliedFolder('模:cpu:1g:1x')).not.toBe(appliedFolder('型:cpu:1g:1x'));
    expect(defaultName(await plan(['python', '-c', 'import torch']))).toMatch(/^code-[0-9a-f]{8}$/);
    expect(defaultName(await plan(['./my job:1.sh']))).toMatch(/^my-job-1\.sh-[0-9a-f]{8}$/);
    // What `--name` takes: no dash in front, no more than 100 characters
    expect(defaultName(await plan(['./-dash.sh']))).toMatch(/^dash\.sh-[0-9a-f]{8}$/);
    expect(defaultName(await plan(['./é é']))).toMatch(/^é-é-[0-9a-f]{8}$/);
    expect(defaultName(await plan([`./${'long'.repeat(60)}`]))).toHaveLength(89);
  });
});

test('every preset has its row in the reference', () => {
  const reference = readFileSync('docs/reference/presets.md', 'utf8');
  for (const { name } of presetFiles()) expect(reference).toContain(`| \`${name}\` |`);
});

test('every preset is covered here or by its files', () => {
  const covered = [...Object.keys(COMMANDS), 'deepspeed'];
  expect(
    presetFiles()
      .map((file) => readPreset(file).name)
      .sort(),
  ).toEqual(covered.sort());
});
