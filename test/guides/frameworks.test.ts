import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Config } from '../../src/contract/rung.js';
import { ROOT } from '../cli/oomtune.js';
import { filled, plan, project } from '../presets/project.js';
import { HF, HF_HARDCODED, LIGHTNING, NANOGPT, TIMM } from '../presets/scripts.js';

/** The guide, the preset that it is about (null: none), and the openings of the scripts that its commands name. */
const GUIDES: [name: string, preset: string | null, files: Record<string, string>][] = [
  ['hf-trainer', 'hf-trainer', { 'run_clm.py': HF }],
  ['timm', 'timm', { 'train.py': TIMM }],
  [
    'nanogpt',
    'nanogpt',
    {
      'train.py': NANOGPT,
      'configurator.py': '',
      'config/train_gpt2.py': 'batch_size = 12\ngradient_accumulation_steps = 40\n',
    },
  ],
  ['lightning', 'lightning-cli', { 'main.py': LIGHTNING, 'config.yaml': 'data:\n  batch_size: 16\n' }],
  ['torchrun', null, { 'train.py': 'import torch\nfrom torch.utils.data import DataLoader\n' }],
];

const read = (name: string) => readFileSync(join(ROOT, 'docs', 'guides', `${name}.md`), 'utf8');

/** "With micro-batch 24, accumulation 2, bf16 and checkpointing it becomes", in the words of the guides. */
function knobsOf(sentence: string): Partial<Config> {
  const number = (name: string) => Number(new RegExp(`${name} (\\d+)`).exec(sentence)?.[1]);
  return {
    micro_batch: number('micro-batch'),
    accumulation: number('accumulation'),
    ...(sentence.includes('bf16') ? { amp: 'bf16' as const } : {}),
    ...(sentence.includes('checkpointing') ? { checkpointing: true } : {}),
  };
}

describe.each(GUIDES)('the guide %s', (name, preset, files) => {
  const cwd = project(files);
  const text = read(name);
  const becomes = /(With micro-batch .*?) it becomes\n\n```text\n(.*)\n```/.exec(text);
  const command = text
    .slice(0, becomes?.index)
    .match(/^oomtune .*? -- (.*)$/gm)
    ?.at(-1)
    ?.replace(/^.*? -- /, '');

  it('shows the command that its example becomes', async () => {
    const [, sentence, line] = becomes as RegExpExecArray;
    expect((await filled(command as string, knobsOf(sentence as string), { cwd })).line).toBe(line);
  });

  it('is about an entry point that is recognised', async () => {
    expect((await plan(command as string, { cwd })).preset).toBe(preset);
  });
});

it('the Trainer with arguments in its script is left to the hook', async () => {
  const { preset, carriers } = await plan('python finetune.py', { cwd: project({ 'finetune.py': HF_HARDCODED }) });
  expect(preset).toBeNull();
  expect(carriers).toMatchObject({ micro_batch: 'hook', accumulation: 'hook', amp: 'hook', checkpointing: 'hook' });
});

it("torchrun's processes and nanoGPT's ranks are counted", async () => {
  const cwd = project({ 'train.py': NANOGPT, 'configurator.py': '', 'config/train_gpt2.py': '' });
  for (const name of ['nanogpt', 'torchrun']) {
    const line = / -- (torchrun .*)$/m.exec(read(name))?.[1] as string;
    expect((await plan(line, { cwd })).worldSize).toBe(4);
  }
});

describe('what was run for real, and where', () => {
  const table = /## What was run, and where\n([\s\S]*?)\n## /.exec(read('frameworks'))?.[1] ?? '';

  it('is said of every entry point that has a preset', () => {
    const presets = readdirSync(join(ROOT, 'config', 'presets')).map((file) => file.replace(/\.yaml$/, ''));
    expect(presets.filter((name) => !table.includes(`(\`${name}\`)`))).toEqual([]);
  });

  it('names all scripts that the tests start, and no other', () => {
    const folder = join(ROOT, 'test', 'frameworks', 'scripts');
    const named = [...table.matchAll(/`(?:test\/frameworks\/scripts\/)?([a-z]+_[a-z0-9_]+\.py)`/g)].map(
      ([, file]) => file as string,
    );
    const started = readdirSync(folder).filter((file) => file.endsWith('.py'));
    expect(started.filter((file) => !named.includes(file))).toEqual([]);
    const upstream = new Set(['run_glue_no_trainer.py', 'nlp_example.py', 'run_clm.py']);
    expect(named.filter((file) => !upstream.has(file) && !existsSync(join(folder, file)))).toEqual([]);
  });
});
