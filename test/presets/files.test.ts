import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { digest } from '../../src/worker/command/index.js';
import { filled, plan, project } from './project.js';
import { DEEPSPEED, HF } from './scripts.js';

let launches = 0;
/** Not there yet, as when a launch begins. */
const launchFolder = (cwd: string): string => {
  launches += 1;
  return join(cwd, 'launches', String(launches));
};

describe('Axolotl', () => {
  const YAML = `# my run
base_model: org/model   # keep me
datasets:
  - path: data/train.jsonl
    type: alpaca
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: auto
gradient_checkpointing: true
learning_rate: 1.0e-4
`;
  const cwd = project({
    'cfg/lora.yml': YAML,
    'old.yml': 'base_model: m\nbatch_size: 32\nmicro_batch_size: 4\nfp16: true\n',
  });

  test('reads its YAML: bf16 auto is bf16, batch_size is micro-batch times accumulation', async () => {
    const made = await plan('axolotl train cfg/lora.yml', { cwd });
    expect(made.preset).toBe('axolotl');
    expect(made.own).toMatchObject({ microBatch: 2, accumulation: 4, amp: 'bf16', checkpointing: true });
    expect((await plan('accelerate launch -m axolotl.cli.train old.yml', { cwd })).own).toMatchObject({
      microBatch: 4,
      accumulation: 8,
      amp: 'fp16',
      checkpointing: false,
    });
  });

  test('puts the knobs into a private copy that keeps comments and order, and leaves the file alone', async () => {
    const launchDir = launchFolder(cwd);
    const { argv, files } = await filled(
      'axolotl train cfg/lora.yml --debug',
      { micro_batch: 7, accumulation: 3, amp: 'off', checkpointing: false },
      { cwd, launchDir },
    );
    expect(files).toHaveLength(1);
    const [copy] = files as [string];
    expect(argv).toEqual(['axolotl', 'train', copy, '--debug']);
    expect(copy.startsWith(`${launchDir}/`)).toBe(true);
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    expect(statSync(launchDir).mode & 0o777).toBe(0o700);
    expect(readFileSync(copy, 'utf8')).toBe(
      YAML.replace('micro_batch_size: 2', 'micro_batch_size: 7')
        .replace('steps: 4', 'steps: 3')
        .replace('bf16: auto', 'bf16: false')
        .replace('gradient_checkpointing: true', 'gradient_checkpointing: false'),
    );
    expect(readFileSync(join(cwd, 'cfg/lora.yml'), 'utf8')).toBe(YAML);
    // A second launch into the same folder replaces the copy.
    const again = await filled('axolotl train cfg/lora.yml', { micro_batch: 9 }, { cwd, launchDir });
    expect(parse(readFileSync(again.files[0] as string, 'utf8')).micro_batch_size).toBe(9);
  });

  test('never gives gradient_accumulation_steps beside batch_size, which axolotl refuses', async () => {
    const { files } = await filled(
      'axolotl train old.yml',
      { micro_batch: 5, accumulation: 3 },
      { cwd, launchDir: launchFolder(cwd) },
    );
    const written = parse(readFileSync(files[0] as string, 'utf8'));
    expect(written).toEqual({ base_model: 'm', batch_size: 15, micro_batch_size: 5, fp16: true });
  });

  test('a flag that overrides the file is replaced too', async () => {
    const command = 'axolotl train cfg/lora.yml --micro-batch-size 16';
    expect((await plan(command, { cwd })).own.microBatch).toBe(16);
    const { line } = await filled(command, { micro_batch: 5 }, { cwd });
    expect(line).toBe('axolotl train cfg/lora.yml --micro-batch-size 5');
  });

  test('without a launch folder nothing is written', async () => {
    const { line, files } = await filled('axolotl train cfg/lora.yml', { micro_batch: 5 }, { cwd });
    expect([line, files]).toEqual(['axolotl train cfg/lora.yml', []]);
  });

  test('keys that are missing are added behind the last one, nested values and line ends or not', async () => {
    const folder = project({
      'a.yaml': 'datasets:\n  - path: x\n    type: y',
      'b.yml': '{base_model: m, micro_batch_size: 2}',
    });
    for (const [file, expected] of [
      ['a.yaml', { datasets: [{ path: 'x', type: 'y' }], micro_batch_size: 5, gradient_checkpointing: true }],
      ['b.yml', { base_model: 'm', micro_batch_size: 5, gradient_checkpointing: true }],
    ] as const) {
      const knobs = { micro_batch: 5, checkpointing: true };
      const { files } = await filled(`axolotl train ${file}`, knobs, { cwd: folder, launchDir: launchFolder(folder) });
      expect(parse(readFileSync(files[0] as string, 'utf8'))).toEqual(expected);
    }
  });

  test('knobs that hold already make no copy', async () => {
    const { line, files } = await filled('axolotl train cfg/lora.yml', {}, { cwd, launchDir: launchFolder(cwd) });
    expect([line, files]).toEqual(['axolotl train cfg/lora.yml', []]);
  });
});

describe('LLaMA-Factory', () => {
  const cwd = project({
    'sft.yaml':
      'stage: sft\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\ndeepspeed: ds/z2.json\n',
    'ds/z2.json':
      '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}',
    'off.yaml': 'disable_gradient_checkpointing: true\n',
  });

  test('checkpointing is on by default and switched off by its own key', async () => {
    expect((await plan('llamafactory-cli train sft.yaml', { cwd })).own).toEqual({
      microBatch: 1,
      accumulation: 8,
      amp: 'bf16',
      checkpointing: true,
      worldSize: null,
    });
    expect((await plan('llamafactory-cli train off.yaml', { cwd })).own.checkpointing).toBe(false);
    const off = { cwd, launchDir: launchFolder(cwd) };
    const { argv } = await filled('llamafactory-cli train sft.yaml', { checkpointing: false }, off);
    expect(parse(readFileSync(argv[2] as string, 'utf8')).disable_gradient_checkpointing).toBe(true);
  });

  test('patches the DeepSpeed file that the YAML names, too, and names the copy in the copy', async () => {
    const { files, argv } = await filled(
      'llamafactory-cli train sft.yaml',
      { micro_batch: 3 },
      { cwd, launchDir: launchFolder(cwd) },
    );
    expect(files).toHaveLength(2);
    const outer = parse(readFileSync(argv[2] as string, 'utf8'));
    expect(outer.per_device_train_batch_size).toBe(3);
    expect(files).toContain(outer.deepspeed);
    expect(JSON.parse(readFileSync(outer.deepspeed, 'utf8'))).toEqual({
      train_batch_size: 'auto',
      train_micro_batch_size_per_gpu: 3,
      zero_optimization: { stage: 2 },
    });
  });

  test('key=value overrides win over the file; flags serve where there is no file', async () => {
    const command = 'llamafactory-cli train sft.yaml per_device_train_batch_size=4';
    expect((await plan(command, { cwd })).own.microBatch).toBe(4);
    expect((await filled(command, { micro_batch: 5 }, { cwd })).line).toContain('per_device_train_batch_size=5');
    const flags = await filled('llamafactory-cli train --stage sft --bf16 True', { micro_batch: 5 }, { cwd });
    expect(flags.line).toBe('llamafactory-cli train --stage sft --bf16 True --per_device_train_batch_size 5');
  });
});

describe('DeepSpeed JSON', () => {
  const DS =
    '{\n    "train_batch_size": 64,\n    "train_micro_batch_size_per_gpu": 4,\n    "bf16": {"enabled": true}\n}\n';
  const cwd = project({
    'train.py': DEEPSPEED,
    'ds.json': DS,
    'total.json': '{"train_batch_size": 32, "gradient_accumulation_steps": 2}',
    'run_clm.py': HF,
    'auto.json': '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}',
    'fixed.json': '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1}',
  });

  test('the three sizes stay consistent: total = micro-batch x accumulation x devices', async () => {
    const command = 'deepspeed --num_gpus 2 train.py --deepspeed --deepspeed_config ds.json';
    const made = await plan(command, { cwd });
    expect(made.preset).toBe('deepspeed');
    expect(made.own).toMatchObject({ microBatch: 4, worldSize: 2, amp: 'bf16' });
    const { argv } = await filled(command, { micro_batch: 6, accumulation: 5 }, { cwd, launchDir: launchFolder(cwd) });
    expect(JSON.parse(readFileSync(argv.at(-1) as string, 'utf8'))).toEqual({
      train_batch_size: 60,
      train_micro_batch_size_per_gpu: 6,
      gradient_accumulation_steps: 5,
      bf16: { enabled: true },
    });
    expect(readFileSync(join(cwd, 'ds.json'), 'utf8')).toBe(DS);
  });

  test('works the micro-batch out where only the total is given', async () => {
    const made = await plan('deepspeed --num_gpus 4 train.py --deepspeed_config=total.json', { cwd });
    expect(made.own).toMatchObject({ microBatch: 4, accumulation: 2 });
  });

  test('precision needs the script to play along: it is read, never switched', async () => {
    const made = await plan('python train.py --deepspeed_config ds.json', { cwd });
    expect([made.carriers.amp, made.supports.amp]).toEqual(['none', ['bf16']]);
    await expect(filled('python train.py --deepspeed_config ds.json', { amp: 'off' }, { cwd })).rejects.toMatchObject({
      code: 'OOMTUNE_USAGE',
    });
  });

  test('beside the Trainer, "auto" follows the flags and numbers are made to agree', async () => {
    const auto = await filled(
      'deepspeed run_clm.py --deepspeed auto.json',
      { micro_batch: 3 },
      { cwd, launchDir: launchFolder(cwd) },
    );
    expect([auto.argv[3], auto.files]).toEqual(['auto.json', []]);
    const fixed = await filled(
      'deepspeed --num_gpus 2 run_clm.py --deepspeed fixed.json',
      { micro_batch: 3, accumulation: 2 },
      { cwd, launchDir: launchFolder(cwd) },
    );
    expect(JSON.parse(readFileSync(fixed.files[0] as string, 'utf8'))).toEqual({
      train_batch_size: 12,
      train_micro_batch_size_per_gpu: 3,
      gradient_accumulation_steps: 2,
    });
    expect(fixed.line).toContain(`--deepspeed ${fixed.files[0]} --per_device_train_batch_size 3`);
  });
});

describe('Trainer arguments in one file', () => {
  const cwd = project({
    'run_clm.py': HF,
    'args.json': '{"output_dir": "out", "per_device_train_batch_size": 4, "fp16": true, "learning_rate": 5e-05}',
  });

  test('are patched in a copy, since no flag may stand beside the file', async () => {
    expect((await plan('python run_clm.py args.json', { cwd })).own).toMatchObject({ microBatch: 4, amp: 'fp16' });
    const { argv } = await filled(
      'python run_clm.py args.json',
      { micro_batch: 6, accumulation: 2, amp: 'bf16', checkpointing: true },
      { cwd, launchDir: launchFolder(cwd) },
    );
    expect(argv).toHaveLength(3);
    expect(JSON.parse(readFileSync(argv[2] as string, 'utf8'))).toEqual({
      output_dir: 'out',
      per_device_train_batch_size: 6,
      fp16: false,
      learning_rate: 5e-5,
      gradient_accumulation_steps: 2,
      bf16: true,
      gradient_checkpointing: true,
    });
  });
});

describe('torchtune', () => {
  const cwd = project({
    'my.yaml': 'batch_size: 2\ngradient_accumulation_steps: 8\ndtype: bf16\nenable_activation_checkpointing: False\n',
  });

  test('overrides behind --config; dtype is full bf16 and never switched', async () => {
    const command = 'tune run --nproc_per_node 2 full_finetune_distributed --config my.yaml batch_size=4';
    const made = await plan(command, { cwd });
    expect(made.own).toEqual({ microBatch: 4, accumulation: 8, amp: 'bf16', checkpointing: false, worldSize: 2 });
    expect(made.supports.amp).toEqual(['bf16']);
    const { line } = await filled(command, { micro_batch: 3, accumulation: 2, checkpointing: true }, { cwd });
    expect(line).toBe(
      'tune run --nproc_per_node 2 full_finetune_distributed --config my.yaml batch_size=3 ' +
        'gradient_accumulation_steps=2 enable_activation_checkpointing=True',
    );
  });

  test('a packaged configuration cannot be read: nothing is assumed of it', async () => {
    const { own } = await plan('tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device', { cwd });
    expect(own).toMatchObject({ microBatch: null, accumulation: null });
  });
});

describe('torchtitan by age', () => {
  const TRAIN = 'from torchtitan.config import ConfigManager\n';
  const ages = {
    first: {
      'torchtitan/config_manager.py': 'class Training:\n    batch_size: int = 8\nclass ActivationCheckpoint:\n',
    },
    second: {
      'torchtitan/config/job_config.py':
        'local_batch_size: int = 8\nglobal_batch_size: int = -1\nclass ActivationCheckpoint:\n',
      'c.toml': '[training]\nlocal_batch_size = 4\nseq_len = 2048\n[activation_checkpoint]\nmode = "full"  # all\n',
    },
    third: { 'torchtitan/config/configs.py': 'class TrainingConfig:\n    local_batch_size: int = 8\n' },
    fourth: {
      'torchtitan/config/configs.py':
        'num_tokens_per_microbatch_per_dp_rank: int = 16384\nnum_tokens_per_train_step: int = -1\n',
    },
  };
  const cwd = Object.fromEntries(
    Object.entries(ages).map(([age, files]) => [age, project({ ...files, 'train.py': TRAIN })]),
  );
  const command = 'torchrun --nproc_per_node 2 -m torchtitan.train';

  test('batch_size, then local_batch_size, then tokens', async () => {
    const write = async (age: string) => (await filled(command, { micro_batch: 6 }, { cwd: cwd[age] })).argv.slice(5);
    expect(await write('first')).toEqual(['--training.batch_size', '6']);
    expect(await write('second')).toEqual(['--training.local_batch_size', '6']);
    expect(await write('third')).toEqual(['--training.local_batch_size', '6']);
    expect(await write('fourth')).toEqual(['--training.num_tokens_per_microbatch_per_dp_rank', '6']);
    expect((await plan(command, { cwd: cwd.fourth })).unit).toBe('tokens');
  });

  test('accumulation is carried by the global batch over data-parallel ranks', async () => {
    const with4 =
      'torchrun --nproc_per_node 4 -m torchtitan.train --training.local-batch-size 2 --training.global_batch_size=32';
    expect((await plan(with4)).own).toMatchObject({ microBatch: 2, accumulation: 4 });
    expect((await filled(with4, { micro_batch: 1, accumulation: 8 })).line).toContain(
      '--training.local-batch-size 1 --training.global_batch_size=32',
    );
    const tensor = `${with4} --parallelism.tensor_parallel_degree 2`;
    expect((await plan(tensor)).own.accumulation).toBe(8);
    expect((await filled(tensor, { micro_batch: 4, accumulation: 8 })).line).toContain(
      '--training.global_batch_size=64',
    );
  });

  test('checkpointing is a flag up to 2026-06 and a last word after', async () => {
    const knobs = { micro_batch: 6, checkpointing: true };
    expect((await filled(command, knobs, { cwd: cwd.second })).line).toMatch(/--activation_checkpoint\.mode full$/);
    expect((await filled(command, knobs, { cwd: cwd.third })).line).toMatch(
      /local_batch_size 6 activation_checkpoint:full$/,
    );
    const given = `${command} activation-checkpoint:none`;
    expect((await filled(given, { micro_batch: 6 }, { cwd: cwd.fourth })).line).toMatch(
      /dp_rank 6 activation-checkpoint:none$/,
    );
  });

  test('what is installed decides where the command stands in no checkout', async () => {
    const file = 'lib/python3.11/site-packages/torchtitan/config/configs.py';
    const env = { VIRTUAL_ENV: project({ [file]: ages.third['torchtitan/config/configs.py'] }), PATH: '/nonexistent' };
    const knobs = { micro_batch: 6, checkpointing: true };
    expect((await filled(command, knobs, { env })).line).toMatch(/local_batch_size 6 activation_checkpoint:full$/);
  });

  test("the command's own flags decide where there is no source", async () => {
    const made = await plan(
      `${command} --training.num-tokens-per-microbatch-per-dp-rank 8192 --training.max_context_length 2048`,
    );
    expect(made).toMatchObject({ unit: 'tokens', minBatch: 2048, own: { microBatch: 8192 } });
    expect((await plan(command)).unit).toBe('samples');
  });

  test('a TOML file is read, and run_train.sh takes NGPU and CONFIG_FILE from the environment', async () => {
    const folder = project({ ...ages.second, 'run_train.sh': '#!/usr/bin/bash\ntorchrun -m torchtitan.train "$@"\n' });
    const made = await plan('env NGPU=4 CONFIG_FILE=c.toml ./run_train.sh', { cwd: folder });
    expect(made).toMatchObject({ preset: 'torchtitan', worldSize: 4 });
    expect(made.own).toMatchObject({ microBatch: 4, accumulation: 1, amp: 'bf16', checkpointing: true });
  });

  test('a TOML file may be written in any way that the format has', async () => {
    const toml = [
      'training = { local_batch_size = 1_0, seq_len = 2048 } # a table in one line',
      'title = """',
      '[training]',
      'local_batch_size = 3',
      '"""',
      "activation_checkpoint.mode = 'full'",
    ];
    const folder = project({ ...ages.second, 'train.py': TRAIN, 'c.toml': `${toml.join('\n')}\n` });
    const made = await plan(`${command} --job.config_file c.toml`, { cwd: folder });
    expect(made.own).toMatchObject({ microBatch: 10, checkpointing: true });
  });

  test('of a TOML file the values decide whether it is the same job: neither its comments nor what is tuned', async () => {
    const toml = (size: string, validation: number) =>
      `[training]\nlocal_batch_size = ${size}\nseq_len = 2048\n[validation]\nlocal_batch_size = ${validation}\n`;
    const folder = project({
      ...ages.second,
      'train.py': TRAIN,
      'a.toml': toml('4', 4),
      'b.toml': toml('8 # more', 4),
      'c.toml': toml('4', 2),
    });
    const job = async (name: string) =>
      digest(await plan(`${command} --job.config_file ${name}.toml`, { cwd: folder }));
    expect(await job('b')).toBe(await job('a'));
    expect(await job('c')).not.toBe(await job('a'));
  });

  test('a TOML file that cannot be read is left to the entry point', async () => {
    const folder = project({ ...ages.second, 'train.py': TRAIN, 'c.toml': '[training\nlocal_batch_size = 4\n' });
    expect((await plan(`${command} --job.config_file c.toml`, { cwd: folder })).own.microBatch).not.toBe(4);
  });
});
