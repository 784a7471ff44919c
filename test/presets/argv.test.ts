import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { filled, plan, project } from './project.js';
import {
  DIFFUSERS,
  HF,
  HF_HARDCODED,
  IMAGENET,
  LIGHTNING,
  NANOGPT,
  NO_TRAINER,
  PLAIN,
  TIMM,
  TIMM_OLD,
} from './scripts.js';

describe('Hugging Face Trainer', () => {
  const cwd = project({ 'run_clm.py': HF, 'hard.py': HF_HARDCODED, 'flax.py': `import flax\n${HF}` });

  test('reads its own values, whatever their spelling', async () => {
    const { preset, own, carriers } = await plan(
      'python run_clm.py --per-device-train-batch-size=16 --gradient_accumulation_steps 4 --bf16 True --gradient_checkpointing',
      { cwd },
    );
    expect(preset).toBe('hf-trainer');
    expect(own).toEqual({ microBatch: 16, accumulation: 4, amp: 'bf16', checkpointing: true, worldSize: null });
    expect(new Set(Object.values(carriers))).toEqual(new Set(['preset']));
  });

  test('replaces flags in place and adds what is missing', async () => {
    const { line } = await filled(
      'python run_clm.py --per_device_train_batch_size 8 --do_train --fp16 --output_dir out',
      { micro_batch: 548, accumulation: 2, amp: 'bf16', checkpointing: true },
      { cwd },
    );
    expect(line).toBe(
      'python run_clm.py --per_device_train_batch_size 548 --do_train --output_dir out ' +
        '--gradient_accumulation_steps 2 --bf16 --gradient_checkpointing',
    );
  });

  test('understands boolean flags with and without a value', async () => {
    for (const [flag, amp] of [
      ['--bf16', 'bf16'],
      ['--bf16 True', 'bf16'],
      ['--bf16=true', 'bf16'],
      ['--bf16 False', 'off'],
      ['--bf16 --fp16 false', 'bf16'],
      ['--fp16', 'fp16'],
    ] as const) {
      expect((await plan(`python run_clm.py ${flag} --seed 1`, { cwd })).own.amp).toBe(amp);
    }
    const { line } = await filled(
      'python run_clm.py --gradient_checkpointing False --seed 1',
      { checkpointing: true },
      { cwd },
    );
    expect(line).toContain('--gradient_checkpointing True --seed 1');
  });

  test('a flag given twice keeps one place: the last, which was in force', async () => {
    const command =
      'python run_clm.py --per_device_train_batch_size 8 --seed 1 --per_device_train_batch_size 16 --gradient_accumulation_steps 2';
    expect((await plan(command, { cwd })).own.microBatch).toBe(16);
    const { line } = await filled(command, { micro_batch: 4 }, { cwd });
    expect(line).toBe('python run_clm.py --seed 1 --per_device_train_batch_size 4 --gradient_accumulation_steps 2');
  });

  test('keeps the old name --per_gpu_train_batch_size where the command uses it', async () => {
    const command = 'python run_clm.py --per_gpu_train_batch_size 8';
    expect((await plan(command, { cwd })).own.microBatch).toBe(8);
    expect((await filled(command, { micro_batch: 5 }, { cwd })).line).toBe(
      'python run_clm.py --per_gpu_train_batch_size 5',
    );
  });

  test("the Trainer's own halving on OOM is switched off, for every size would seem to fit", async () => {
    const { line } = await filled('python run_clm.py --auto_find_batch_size --seed 1', { micro_batch: 4 }, { cwd });
    expect(line).toBe('python run_clm.py --seed 1 --per_device_train_batch_size 4');
    const valued = await filled('python run_clm.py --auto_find_batch_size True', { micro_batch: 4 }, { cwd });
    expect(valued.line).toContain('--auto_find_batch_size False');
  });

  test('flags go before a bare --', async () => {
    const { argv } = await filled(['python', 'run_clm.py', '--seed', '1', '--', 'rest'], { micro_batch: 4 }, { cwd });
    expect(argv.slice(-4)).toEqual(['--per_device_train_batch_size', '4', '--', 'rest']);
  });

  test('a script with hard-coded TrainingArguments, and a Flax one, are no preset', async () => {
    const { preset, carriers, isPythonTorch } = await plan('python hard.py', { cwd });
    expect([preset, carriers.micro_batch, isPythonTorch]).toEqual([null, 'hook', true]);
    expect((await plan('python flax.py', { cwd })).preset).toBeNull();
  });

  test('is recognised behind launchers, with their world size', async () => {
    for (const [front, world] of [
      ['torchrun --nproc_per_node=4', 4],
      ['torchrun --standalone --nnodes 2 --nproc-per-node 8', 16],
      ['torchrun --nproc_per_node gpu', null],
      ['torchrun', 1],
      ['python -m torch.distributed.run --nproc_per_node 2', 2],
      ['python3 -u -m torch.distributed.launch --nproc_per_node=2 --use_env', 2],
      ['accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16', 2],
      ['accelerate launch', null],
      ['deepspeed --num_gpus 2', 2],
      ['deepspeed --include localhost:0,2,3 --master_port 29501', 3],
      ['env OMP_NUM_THREADS=1 uv run --frozen torchrun --nproc_per_node 2', 2],
      ['srun -n4 --gres gpu:4 python', 4],
      ['nice -n 5 timeout 3600 conda run -n base python', null],
      ['mpirun -np 2 python', 2],
    ] as const) {
      const made = await plan(`${front} run_clm.py --per_device_train_batch_size 3`, { cwd });
      expect([front, made.preset, made.worldSize, made.own.microBatch]).toEqual([front, 'hf-trainer', world, 3]);
      expect(made.program.script?.stem).toBe('run_clm');
    }
  });

  test('by srun in as many processes, on as many machines, as it says or Slurm does', async () => {
    const env = { SLURM_NTASKS: '4', SLURM_NNODES: '2' };
    for (const [front, world, nodes] of [
      ['srun python', 4, 2],
      ['srun -N1 python', 4, 1],
      ['srun --ntasks=2 --nodes 3-4 python', 2, 3],
      ['srun -N2-4 -ln2 python', 2, 2],
      ['srun --mpi pmix --cpu-bind none --export ALL -r 1 -m block:block -n 3 -N 1 python', 3, 1],
      // one process is on one machine
      ['srun --ntasks=1 torchrun --nproc-per-node=8 python', 8, 1],
      ['srun -n1 -N2 python', 1, 2],
      // options that are not known: with a value before counts, without one, and before those of the script
      ['srun --yet-unknown value -n2 -N1 python', null, 1],
      ['srun --yet-unknown value --ntasks=2 python', null, 1],
      ['srun --yet-unknown python', 4, 2],
      ['python', null, 1],
    ] as const) {
      const made = await plan(`${front} run_clm.py`, { cwd, env });
      expect([front, made.worldSize, made.nodes]).toEqual([front, world, nodes]);
    }
    const made = await plan('srun python run_clm.py', { cwd });
    expect([made.worldSize, made.nodes]).toEqual([null, 1]);
  });

  test('by launchers of torch on as many machines as they say', async () => {
    for (const [front, world, nodes] of [
      ['torchrun --nnodes=2 --node-rank 1 --nproc-per-node auto', null, 2],
      ['python -m torch.distributed.run --nnodes 2:4', null, 2],
      ['torchrun --nnodes 1:4', null, 1],
      ['srun -N2 --ntasks-per-node 1 torchrun --nnodes 1 --nproc-per-node 4', 4, 2],
      ['accelerate launch --num_machines 2 --num_processes 4', 4, 2],
      ['deepspeed --num_nodes 2', null, 2],
      ['deepspeed --include worker-0:0,1@worker-1:0,1', 4, 2],
      ['deepspeed --include localhost:0,2', 2, 1],
    ] as const) {
      const made = await plan(`${front} run_clm.py`, { cwd, env: {} });
      expect([front, made.worldSize, made.nodes]).toEqual([front, world, nodes]);
    }
    const env = { PET_NNODES: '2', PET_NPROC_PER_NODE: '4' };
    for (const [front, world, nodes] of [
      ['torchrun', 8, 2],
      ['torchrun --nnodes 1', 4, 1],
      ['env PET_NNODES=1 torchrun --nproc-per-node 2', 2, 1],
      ['python', null, 1],
    ] as const) {
      const made = await plan(`${front} run_clm.py`, { cwd, env });
      expect([front, made.worldSize, made.nodes]).toEqual([front, world, nodes]);
    }
    const made = await plan('torchrun run_clm.py', { cwd });
    expect([made.worldSize, made.nodes]).toEqual([1, 1]);
  });

  test('by launchers on as many machines as the file says that they read', async () => {
    const files = project({
      'run_clm.py': HF,
      'two.yaml': 'compute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 8\n',
      'three.json': '{"num_machines": 3}',
      'broken.yaml': 'num_machines: [',
      hosts: '# ours\nworker-0 slots=4\n\nworker-1 slots=4\n',
      'hub/accelerate/default_config.yaml': 'num_machines: 4\n',
      'cache/huggingface/accelerate/default_config.yaml': 'num_machines: 5\n',
      '.cache/huggingface/accelerate/default_config.yaml': 'num_machines: 6\n',
    });
    const home = { HOME: files };
    const cache = { ...home, XDG_CACHE_HOME: join(files, 'cache') };
    for (const [front, env, nodes, here] of [
      ['accelerate launch --config_file two.yaml', {}, 2, null],
      ['accelerate launch --config_file=two.yaml --num_processes 8', {}, 2, 4],
      ['accelerate launch --config_file two.yaml --num_machines 1', {}, 1, null],
      ['python -m accelerate.commands.launch --config_file three.json', home, 3, null],
      ['accelerate launch --config_file broken.yaml', home, 1, null],
      ['accelerate launch --config_file absent.yaml', home, 1, null],
      ['accelerate launch', home, 6, null],
      ['accelerate launch', cache, 5, null],
      ['accelerate launch', { ...cache, HF_HOME: join(files, 'hub') }, 4, null],
      ['accelerate launch', {}, 1, null],
      ['deepspeed -H hosts', {}, 2, null],
      ['deepspeed --hostfile=hosts --num_gpus 4', {}, 2, 4],
      ['deepspeed --hostfile hosts --num_nodes 1 --num_gpus 4', {}, 1, 4],
      ['deepspeed --hostfile hosts --include worker-1:0,1', {}, 1, 2],
    ] as const) {
      const made = await plan(`${front} run_clm.py`, { cwd: files, env });
      expect([front, made.nodes, made.processesHere]).toEqual([front, nodes, here]);
    }
  });

  test('by options of torch that are new, cut short or before a module', async () => {
    const env = { PET_NNODES: '2', PET_NPROC_PER_NODE: '4' };
    for (const [front, world, nodes, script] of [
      ['torchrun --virtual-local-rank run_clm.py', 8, 2, 'run_clm'],
      ['torchrun --virtual_local_rank --nnodes 1 run_clm.py', 4, 1, 'run_clm'],
      ['torchrun --nnode 3 run_clm.py', 12, 3, 'run_clm'],
      ['torchrun --stand --nn=1 --nproc_per 2 run_clm.py', 2, 1, 'run_clm'],
      ['torchrun --nproc-per-nod 2 --role trainer --max-rest 3 run_clm.py --nnode 5', 4, 2, 'run_clm'],
      ['torchrun --module pkg.train --nnodes 1', 8, 2, undefined],
      ['torchrun --mod pkg.train --nnodes 1', 8, 2, undefined],
      ['torchrun --no-pyth pkg.train --nnodes 1', 8, 2, undefined],
      ['deepspeed --incl a:0@b:0,1 run_clm.py', 3, 2, 'run_clm'],
      // which accelerate does not take
      ['accelerate launch --num_machine 2 run_clm.py', null, 1, 'run_clm'],
    ] as const) {
      const made = await plan(front, { cwd, env });
      expect([front, made.worldSize, made.nodes, made.program.script?.stem]).toEqual([front, world, nodes, script]);
    }
    expect((await plan('torchrun --mod pkg.train --nnodes 1', { cwd, env })).program.module).toBe('pkg.train');
  });

  test('by what a launcher sees of the environment behind env', async () => {
    const env = { PET_NNODES: '2', PET_NPROC_PER_NODE: '4', SLURM_NTASKS: '4', SLURM_NNODES: '2' };
    for (const [front, world, nodes] of [
      ['env -u PET_NPROC_PER_NODE torchrun', 2, 2],
      ['env --unset=PET_NNODES --unset PET_NPROC_PER_NODE torchrun', 1, 1],
      ['env -uPET_NNODES env PET_NPROC_PER_NODE=3 python -m torch.distributed.run', 3, 1],
      ['env -u PET_NNODES PET_NNODES=3 torchrun', 12, 3],
      ['env -i PET_NPROC_PER_NODE=2 torchrun', 2, 1],
      ['env PET_NNODES=3 env - torchrun', 1, 1],
      ['env -0iu HOME torchrun', 1, 1],
      ['env --ignore-environment torchrun', 1, 1],
      ['env -C / -u SLURM_NNODES srun python', 4, 1],
    ] as const) {
      const made = await plan(`${front} run_clm.py`, { cwd, env });
      expect([front, made.worldSize, made.nodes]).toEqual([front, world, nodes]);
    }
  });

  test('by launchers on several machines, with the processes of each', async () => {
    for (const [front, here] of [
      ['torchrun --nnodes 2 --nproc-per-node 4', 4],
      ['torchrun --nproc-per-node 1', 1],
      ['torchrun', 3],
      ['torchrun --nnodes 1', 3],
      ['accelerate launch --num_machines 2 --num_processes 4', 2],
      ['deepspeed --include worker-0:0,1@worker-1:0', 2],
      ['deepspeed --num_nodes 2', null],
      ['srun -n 5 -N 2 python', 3],
      ['srun -N2 -n2 torchrun --nnodes 1 --nproc-per-node 4', 4],
      ['srun -N2 -n2 torchrun --nnodes 2 --nproc-per-node 4', 4],
      ['python', null],
    ] as const) {
      const env = front.includes('srun') ? {} : { PET_NNODES: '2', PET_NPROC_PER_NODE: '3' };
      const made = await plan(`${front} run_clm.py`, { cwd, env });
      expect([front, made.processesHere]).toEqual([front, here]);
    }
  });
});

describe('timm', () => {
  const cwd = project({ 'train.py': TIMM, 'old/train.py': TIMM_OLD, 'args.yaml': 'batch_size: 64\namp: true\n' });

  test('reads short, joined and abbreviated flags', async () => {
    for (const flag of [
      '-b 32',
      '-b32',
      '-b=32',
      '--batch-size 32',
      '--batch-size=32',
      '--batch 32',
      '--batch-si=32',
    ]) {
      expect([flag, (await plan(`python train.py /data ${flag}`, { cwd })).own.microBatch]).toEqual([flag, 32]);
    }
    // An exact flag of the script is never taken for an abbreviation.
    expect((await plan('python train.py --validation-batch-size 7', { cwd })).own.microBatch).toBe(128);
  });

  test("takes the default from the script's own parser", async () => {
    expect((await plan('python train.py /data', { cwd })).own).toMatchObject({
      microBatch: 128,
      accumulation: 1,
      amp: 'off',
    });
  });

  test('writes bf16 as --amp with its dtype, and takes both away again', async () => {
    const on = await filled('python train.py /data -b 32', { amp: 'bf16', micro_batch: 7, accumulation: 3 }, { cwd });
    expect(on.line).toBe('python train.py /data -b 7 --grad-accum-steps 3 --amp --amp-dtype bfloat16');
    const off = await filled(
      'python train.py --amp --amp-dtype bfloat16 --lr 1',
      { amp: 'off', micro_batch: 7 },
      { cwd },
    );
    expect(off.line).toBe('python train.py --lr 1 --batch-size 7');
    expect((await plan('python train.py --amp', { cwd })).own.amp).toBe('fp16');
  });

  test('an older timm has no accumulation flag and no bf16', async () => {
    const made = await plan('python old/train.py -b 8 --amp', { cwd });
    expect(made.carriers).toMatchObject({ micro_batch: 'preset', accumulation: 'hook', amp: 'preset' });
    expect(made.supports.amp).toEqual(['off', 'fp16']);
    expect(made.own.amp).toBe('fp16');
    await expect(filled('python old/train.py -b 8', { amp: 'bf16' }, { cwd })).rejects.toMatchObject({
      code: 'OOMTUNE_USAGE',
    });
  });

  test('reads defaults from its -c file, which flags override', async () => {
    expect((await plan('python train.py -c args.yaml', { cwd })).own).toMatchObject({ microBatch: 64, amp: 'fp16' });
    expect((await plan('python train.py -c args.yaml -b 8', { cwd })).own.microBatch).toBe(8);
    expect((await filled('python train.py -c args.yaml', { micro_batch: 9 }, { cwd })).line).toBe(
      'python train.py -c args.yaml --batch-size 9',
    );
  });
});

describe('nanoGPT', () => {
  const cwd = project({
    'train.py': NANOGPT,
    'configurator.py': '',
    'config/train_gpt2.py':
      "wandb_log = True\nbatch_size = 16\ngradient_accumulation_steps = 4 * 8\ndtype = 'float32'\n",
  });

  test('accumulation counts over all ranks: it is divided by the world size and multiplied back', async () => {
    const command = 'torchrun --nproc_per_node=4 train.py --batch_size=8 --gradient_accumulation_steps=40';
    expect((await plan(command, { cwd })).own).toMatchObject({ microBatch: 8, accumulation: 10, worldSize: 4 });
    const { line } = await filled(command, { micro_batch: 5, accumulation: 16 }, { cwd });
    expect(line).toBe('torchrun --nproc_per_node=4 train.py --batch_size=5 --gradient_accumulation_steps=64');
  });

  test("reads the script's module-level defaults, products included", async () => {
    const { own } = await plan('python train.py', { cwd });
    expect(own).toMatchObject({ microBatch: 12, accumulation: 40, amp: 'bf16' });
  });

  test('a configuration file overrides flags in front of it, so the flag moves behind it', async () => {
    const late = 'python train.py config/train_gpt2.py --batch_size=8';
    expect((await plan(late, { cwd })).own).toMatchObject({ microBatch: 8, accumulation: 32, amp: 'off' });
    const early = 'python train.py --batch_size=8 config/train_gpt2.py';
    expect((await plan(early, { cwd })).own.microBatch).toBe(16);
    expect((await filled(early, { micro_batch: 9 }, { cwd })).line).toBe(
      'python train.py config/train_gpt2.py --batch_size=9',
    );
  });

  test('only ever writes the --key=value form, which is all that configurator.py takes', async () => {
    const { argv } = await filled('python train.py', { micro_batch: 3, accumulation: 2, amp: 'fp16' }, { cwd });
    expect(argv.slice(2)).toEqual(['--batch_size=3', '--gradient_accumulation_steps=2', '--dtype=float16']);
  });

  test('has no checkpointing of its own: the hook brings it', async () => {
    expect((await plan('python train.py', { cwd })).carriers.checkpointing).toBe('hook');
  });
});

describe('LightningCLI', () => {
  const cwd = project({
    'main.py': LIGHTNING,
    'fit.yaml':
      'data:\n  class_path: Data\n  init_args:\n    batch_size: 24\ntrainer:\n  precision: 16-mixed\n  devices: 2\n',
    'venv/bin/python': '',
    'venv/lib/python3.9/site-packages/pytorch_lightning-1.9.5.dist-info/METADATA': '',
    'none.py': 'from lightning.pytorch.cli import LightningCLI\nLightningCLI(Model, OtherData)\n',
  });

  test('reads flags and configuration files, and overrides a file by the flag of the same path', async () => {
    const made = await plan('python main.py fit --config fit.yaml', { cwd });
    expect(made.own).toMatchObject({ microBatch: 24, amp: 'fp16', accumulation: 1, worldSize: 2 });
    const { line } = await filled('python main.py fit --config fit.yaml', { micro_batch: 6, amp: 'bf16' }, { cwd });
    expect(line).toBe(
      'python main.py fit --config fit.yaml --data.init_args.batch_size 6 --trainer.precision bf16-mixed',
    );
  });

  test('a --config behind a flag overrides it: the flag moves', async () => {
    const command = 'python main.py fit --data.init_args.batch_size 8 --config fit.yaml';
    expect((await plan(command, { cwd })).own.microBatch).toBe(24);
    expect((await filled(command, { micro_batch: 6 }, { cwd })).line).toBe(
      'python main.py fit --config fit.yaml --data.init_args.batch_size 6',
    );
  });

  test('precision is spelt as the installed version spells it', async () => {
    const modern = await filled('python main.py fit', { amp: 'bf16', micro_batch: 4 }, { cwd });
    expect(modern.line).toContain('--trainer.precision bf16-mixed');
    const old = await filled('venv/bin/python main.py fit', { amp: 'bf16', micro_batch: 4 }, { cwd });
    expect(old.line).toMatch(/--trainer\.precision bf16$/);
    expect((await plan('venv/bin/python main.py fit --trainer.precision 16', { cwd })).own.amp).toBe('fp16');
  });

  test('a DataModule that names no batch size leaves it to the hook', async () => {
    const made = await plan('python none.py fit', { cwd });
    expect(made.carriers).toMatchObject({ micro_batch: 'hook', accumulation: 'preset', amp: 'preset' });
  });
});

describe('Ultralytics', () => {
  test('batch counts over all devices and nbs is the effective batch', async () => {
    const command = 'yolo detect train data=coco.yaml model=yolo11n.pt batch=32 device=0,1,2,3';
    const { preset, own } = await plan(command);
    expect(preset).toBe('ultralytics');
    expect(own).toEqual({ microBatch: 8, accumulation: 2, amp: 'fp16', checkpointing: null, worldSize: 4 });
    const { line } = await filled(command, { micro_batch: 10, accumulation: 3, amp: 'off' });
    expect(line).toBe('yolo detect train data=coco.yaml model=yolo11n.pt batch=40 device=0,1,2,3 nbs=120 amp=False');
  });

  test('what stands as it is stays: batch 16 accumulates to 64 by itself', async () => {
    expect((await plan('yolo train batch=16')).own).toMatchObject({ microBatch: 16, accumulation: 4 });
    expect((await filled('yolo train batch=16', {})).line).toBe('yolo train batch=16');
    expect((await filled('yolo train batch=16', { micro_batch: 128, accumulation: 1 })).line).toBe(
      'yolo train batch=128 nbs=128',
    );
  });

  test('its own batch finder (batch=-1, batch=0.7) is no batch and is replaced', async () => {
    for (const text of ['-1', '0.7']) {
      expect((await plan(`yolo train batch=${text}`)).own.microBatch).toBeNull();
      expect((await filled(`yolo train batch=${text}`, { micro_batch: 12 })).line).toBe('yolo train batch=12 nbs=12');
    }
  });

  test('knows off and fp16 only; device=3 is one device', async () => {
    const made = await plan('yolo train device=3');
    expect([made.supports.amp, made.worldSize]).toEqual([['off', 'fp16'], 1]);
    expect((await plan('yolo predict source=x.jpg')).preset).toBeNull();
  });
});

describe('TRL', () => {
  const trl = (version: string) =>
    project({
      'bin/python': '#!/bin/sh\n',
      'bin/trl': '#!./python\n',
      [`lib/python3.11/site-packages/trl-${version}.dist-info/METADATA`]: '',
      'sft.yaml': 'per_device_train_batch_size: 2\nbf16: false\n',
    });
  const command = (cwd: string) => `${cwd}/bin/trl sft --model_name_or_path m --dataset_name d`;

  test('trains in bf16 with checkpointing where nothing is said, which stays as it is', async () => {
    const cwd = trl('1.16.0');
    const { preset, own } = await plan(command(cwd), { cwd });
    expect(preset).toBe('trl');
    expect(own).toEqual({ microBatch: 8, accumulation: 1, amp: 'bf16', checkpointing: true, worldSize: null });
    expect((await filled(command(cwd), {}, { cwd })).line).toBe(`${command(cwd)} --per_device_train_batch_size 8`);
    const { line } = await filled(command(cwd), { micro_batch: 3, amp: 'off', checkpointing: false }, { cwd });
    expect(line).toBe(`${command(cwd)} --per_device_train_batch_size 3 --bf16 False --gradient_checkpointing False`);
  });

  test('older versions had the defaults of transformers', async () => {
    for (const [version, amp, checkpointing] of [
      ['0.18.2', 'off', false],
      ['0.21.0', 'bf16', false],
      ['0.22.0', 'bf16', true],
    ] as const) {
      const cwd = trl(version);
      expect([version, (await plan(command(cwd), { cwd })).own]).toMatchObject([version, { amp, checkpointing }]);
    }
  });

  test('reads its --config file, which flags override', async () => {
    const cwd = trl('1.16.0');
    const read = `${command(cwd)} --config sft.yaml`;
    expect((await plan(read, { cwd })).own).toMatchObject({ microBatch: 2, amp: 'off' });
    const { line } = await filled(read, { micro_batch: 5, amp: 'bf16' }, { cwd });
    expect(line).toBe(`${read} --per_device_train_batch_size 5 --bf16`);
  });

  test('a script that reads its configurations is one of its own, too', async () => {
    const cwd = project({
      'a.py': 'TrlParser((ScriptArguments, SFTConfig))',
      'b.py': 'HfArgumentParser((S, DPOConfig))',
    });
    expect((await plan('python a.py', { cwd })).preset).toBe('trl');
    expect((await plan('python b.py', { cwd })).preset).toBe('trl');
  });
});

describe('LitGPT', () => {
  test('the global batch is the effective one, over all devices', async () => {
    const command = 'litgpt finetune_lora m --devices 4 --train.micro_batch_size 2 --train.global_batch_size 32';
    const { preset, own } = await plan(command);
    expect(preset).toBe('litgpt');
    expect(own).toEqual({ microBatch: 2, accumulation: 4, amp: 'bf16', checkpointing: null, worldSize: 4 });
    const { line } = await filled(command, { micro_batch: 1, accumulation: 8, amp: 'off' });
    expect(line).toBe(
      'litgpt finetune_lora m --devices 4 --train.micro_batch_size 1 --train.global_batch_size 32 --precision 32-true',
    );
  });

  test('fine-tuning and pretraining begin with other batches', async () => {
    expect((await plan('litgpt finetune m')).own).toMatchObject({ microBatch: 1, accumulation: 16 });
    expect((await plan('litgpt pretrain pythia-14m')).own).toMatchObject({ microBatch: 4, accumulation: 128 });
    expect((await plan('litgpt chat m')).preset).toBeNull();
  });

  test('full bf16 is left to the command that asks for it', async () => {
    const command = 'litgpt finetune_full m --precision bf16-true';
    expect((await plan(command)).own.amp).toBe('bf16');
    expect((await filled(command, { micro_batch: 2 })).line).toContain('--precision bf16-true');
  });
});

describe('pytorch/examples imagenet', () => {
  const cwd = project({ 'main.py': IMAGENET });

  test('-b counts over all GPUs', async () => {
    const command = 'python main.py -a resnet18 -b 256 --multiprocessing-distributed /data';
    const made = await plan(command, { cwd, worldSize: 4 });
    expect(made.own).toMatchObject({ microBatch: 64, worldSize: 4 });
    expect((await filled(command, { micro_batch: 48 }, { cwd, worldSize: 4 })).line).toContain('-b 192');
    expect(made.carriers).toEqual({ micro_batch: 'preset', accumulation: 'hook', amp: 'hook', checkpointing: 'hook' });
  });
});

describe('Accelerate scripts', () => {
  const cwd = project({ 'run_clm_no_trainer.py': NO_TRAINER, 'train_text_to_image.py': DIFFUSERS });

  test('have the flags that their own parser has, not the Trainer’s', async () => {
    const made = await plan('accelerate launch run_clm_no_trainer.py --per_device_train_batch_size 4', { cwd });
    expect(made.preset).toBe('accelerate');
    expect(made.carriers).toEqual({
      micro_batch: 'preset',
      accumulation: 'preset',
      amp: 'hook',
      checkpointing: 'hook',
    });
    const { line } = await filled(
      'python train_text_to_image.py',
      { micro_batch: 3, amp: 'bf16', checkpointing: true },
      { cwd },
    );
    expect(line).toBe(
      'python train_text_to_image.py --train_batch_size 3 --mixed_precision bf16 --gradient_checkpointing',
    );
    expect((await plan('python train_text_to_image.py', { cwd })).own.microBatch).toBe(16);
  });
});

describe('fairseq', () => {
  test('a command with --max-tokens is batched by tokens, at least one sample of them', async () => {
    const made = await plan(
      'fairseq-train data-bin --max-tokens 4096 --max-source-positions 512 --update-freq 8 --fp16',
    );
    expect(made).toMatchObject({ preset: 'fairseq', unit: 'tokens', minBatch: 512 });
    expect(made.own).toMatchObject({ microBatch: 4096, accumulation: 8, amp: 'fp16' });
    const { line } = await filled('fairseq-train data-bin --max-tokens 4096', { micro_batch: 9000 });
    expect(line).toBe('fairseq-train data-bin --max-tokens 9000');
  });

  test('sentences otherwise, under either name; Hydra lists keep their brackets', async () => {
    expect((await filled('fairseq-train d --max-sentences 8', { micro_batch: 9, accumulation: 2 })).line).toBe(
      'fairseq-train d --max-sentences 9 --update-freq 2',
    );
    const hydra = 'fairseq-hydra-train task.data=d dataset.batch_size=8 optimization.update_freq=[4]';
    expect((await plan(hydra)).own).toMatchObject({ microBatch: 8, accumulation: 4 });
    expect((await filled(hydra, { micro_batch: 2, accumulation: 16 })).line).toBe(
      'fairseq-hydra-train task.data=d dataset.batch_size=2 optimization.update_freq=[16]',
    );
  });
});

describe('a script that no preset knows', () => {
  const cwd = project({
    'mlp.py': PLAIN,
    'sdk.py': 'import torch\nimport oomtune\nc = oomtune.config()\nb = c.micro_batch\n',
    'env.sh': '#!/bin/bash\nexec ./trainer --batch $OOMTUNE_MICRO_BATCH\n',
  });

  test('gets its knobs from the hook, unless the hook is off or it reads them itself', async () => {
    expect((await plan('python mlp.py', { cwd })).carriers.micro_batch).toBe('hook');
    expect((await plan('python mlp.py', { cwd, preset: 'none' })).carriers.micro_batch).toBe('none');
    expect((await plan('python sdk.py', { cwd })).carriers).toMatchObject({ micro_batch: 'env', amp: 'hook' });
    expect((await plan('./env.sh', { cwd, preset: 'none' })).carriers.micro_batch).toBe('env');
    expect((await plan('/bin/true')).isPythonTorch).toBe(false);
  });

  test('options that shut the hook out are named', async () => {
    expect((await plan('python -I mlp.py', { cwd })).program.isolated).toBe('-I');
    expect((await plan('python -uS mlp.py', { cwd })).notes.join()).toContain('-S');
    expect((await plan('python -W ignore::E -X importtime mlp.py', { cwd })).program).toMatchObject({ isolated: null });
  });

  test('a preset can be named, and an unknown one is told with the list', async () => {
    const { argv } = await filled('python mlp.py', { micro_batch: 3 }, { cwd, preset: 'hf-trainer' });
    expect(argv).toContain('--per_device_train_batch_size');
    await expect(plan('python mlp.py', { preset: 'hf' })).rejects.toMatchObject({
      code: 'OOMTUNE_USAGE',
      remedy: expect.stringContaining('hf-trainer'),
    });
  });

  test('the environment always carries the knobs', async () => {
    const { env } = await filled(
      'python mlp.py',
      { micro_batch: 3, accumulation: 2, amp: 'bf16', checkpointing: true },
      { cwd },
    );
    expect(env).toEqual({
      OOMTUNE_MICRO_BATCH: '3',
      OOMTUNE_ACCUMULATION: '2',
      OOMTUNE_EFFECTIVE_BATCH: '6',
      OOMTUNE_AMP: 'bf16',
      OOMTUNE_CHECKPOINTING: '1',
    });
  });
});
