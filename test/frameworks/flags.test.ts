import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { filled } from '../presets/project.js';
import { Warm } from './warm.js';

/** An interpreter with the real packages; empty: they could not be installed, or were not asked for. */
const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (python === '') {
  process.stderr.write('SKIPPED: flags read by the real parsers, as OOMTUNE_TEST_FRAMEWORKS names no interpreter\n');
}

/** What the entry point's own parser makes of the arguments behind the command: (batch, accumulation, bf16, fp16, checkpointing). */
const TRAINER = `args.per_device_train_batch_size, args.gradient_accumulation_steps, args.bf16, args.fp16, args.gradient_checkpointing`;
const PARSERS: Record<string, { command: string; parse: string }> = {
  'hf-trainer': {
    command: 'python run_clm.py --output_dir out --use_cpu',
    parse: `
from transformers import HfArgumentParser, TrainingArguments
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(argv[2:])
said = ${TRAINER}`,
  },
  trl: {
    command: 'trl sft --model_name_or_path m --dataset_name d --output_dir out --use_cpu',
    parse: `
from trl.scripts.sft import make_parser
parsed = make_parser().parse_args_and_config(argv[2:])
args = next(one for one in parsed if hasattr(one, 'gradient_accumulation_steps'))
said = ${TRAINER}`,
  },
  ultralytics: {
    command: 'yolo detect train data=coco8.yaml',
    parse: `
from ultralytics.cfg import get_cfg, parse_key_value_pair
args = get_cfg(overrides=dict(parse_key_value_pair(one) for one in argv[3:]))
said = int(args.batch), int(args.nbs) // int(args.batch), False, args.amp, None`,
  },
};

const folder = mkdtempSync(join(tmpdir(), 'oomtune-flags-'));
const env = { ...process.env, HF_HUB_OFFLINE: '1', CUDA_VISIBLE_DEVICES: '' };
let warm: Warm;

/** For each command line, in one process: what its program reads in it. */
async function said(name: string, commands: string[][]): Promise<unknown[][]> {
  const parse = PARSERS[name]?.parse.trim().split('\n').join('\n    ');
  const program = `
import json, sys
answers = []
for argv in json.loads(sys.argv[1]):
    ${parse}
    answers.append(said)
print(json.dumps(answers))`;
  writeFileSync(join(folder, 'parse.py'), program);
  const { status, output } = await warm.run('parse.py', [JSON.stringify(commands)], folder, env);
  if (status !== 0) throw new Error(output);
  return JSON.parse(output.trim().split('\n').at(-1) ?? '');
}

describe.skipIf(python === '')('what a preset writes is what the installed parser reads', () => {
  beforeAll(async () => {
    warm = new Warm(python, ['trl.scripts.sft'], env);
    await warm.version;
  });

  afterAll(() => {
    warm.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it.each(Object.entries(PARSERS))('%s', async (name, { command }) => {
    const half = name === 'ultralytics' ? 'fp16' : 'bf16';
    const checkpoints = name !== 'ultralytics';
    const rungs = (['off', half] as const).flatMap((amp) =>
      (checkpoints ? [false, true] : [false]).map((checkpointing) => ({ amp, checkpointing })),
    );
    const commands = await Promise.all(
      rungs.map(
        async (rung) => (await filled(command, { micro_batch: 5, accumulation: 3, ...rung }, { preset: name })).argv,
      ),
    );
    expect(await said(name, commands)).toEqual(
      rungs.map(({ amp, checkpointing }) => [5, 3, amp === 'bf16', amp === 'fp16', checkpoints ? checkpointing : null]),
    );
  });
});
