import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from '../cli/oomtune.js';

/** What the suite starts for real: what pages call it, and the script that does, with a word of it; none: a folder of entry-points. */
const STARTED: Record<string, [called: RegExp, file?: string, word?: string]> = {
  transformers: [/\btransformers\b|Hugging Face Trainer/i, 'hf_trainer.py', 'transformers'],
  accelerate: [/\baccelerate\b/i, 'accelerate_loop.py', 'accelerate'],
  trl: [/\bTRL\b/i, 'trl_sft.py', 'trl'],
  peft: [/\bPEFT\b/i, 'trl_sft.py', 'peft'],
  lightning: [/\bLightning(?:CLI)?\b/i, 'lightning_cli.py', 'lightning'],
  timm: [/\btimm\b/i, 'timm_loop.py', 'timm'],
  ultralytics: [/\b(?:Ultralytics|YOLO)\b/i, 'yolo_data.py', 'yolo'],
  pyg: [/\bPyG\b/i, 'pyg_graphs.py', 'torch_geometric'],
  hydra: [/\bHydra\b/i, 'hydra_app.py', 'hydra'],
  webdataset: [/\bwebdataset\b/i, 'web_pipeline.py', 'webdataset'],
  torchvision: [/\btorchvision\b/i, 'torchvision_detection.py', 'torchvision'],
  keras: [/\bKeras\b/i, 'keras_fit.py', 'keras'],
  torchtune: [/\btorchtune\b/i],
  litgpt: [/\bLitGPT\b/i],
  axolotl: [/\bAxolotl\b/i],
  deepspeed: [/\bDeepSpeed\b/i],
  'llama-factory': [/\bLLaMA-Factory\b|\bllamafactory\b/i],
  fairseq: [/\bfairseq\b/i],
  torchtitan: [/\btorchtitan\b/i],
  jax: [/\b(?:JAX|Flax|Optax)\b/i],
  bitsandbytes: [/\bbitsandbytes\b/i],
  libtorch: [/\blibtorch\b/i],
};

/** Programs of a repository, in no package that could be installed: what frameworks.md has to say of them. */
const NOT_STARTED: Record<string, [called: RegExp, said: RegExp]> = {
  nanogpt: [/\bnanoGPT\b/i, /nanoGPT \(`nanogpt`\)[^|]*\|[^|]*none of the scripts/],
  karpathy: [/\b(?:minGPT|makemore)\b/i, /pytorch\/examples, minGPT, makemore/],
};
/** Presets of what is started under another name, and of another such program. */
const PRESETS: Record<string, string> = {
  'hf-trainer': 'transformers',
  'lightning-cli': 'lightning',
  'pytorch-imagenet': 'nanogpt',
};

/** Named for another reason: whose messages are read, and what else there is to choose from. */
const OTHERS =
  /\b(?:TensorFlow|Paddle|CuPy|Megatron|Colossal-?AI|NeMo|unsloth|MMDetection|Detectron2?|fastai|Horovod|vLLM|SGLang|Composer|Catalyst|Ignite|diffusers|stable-baselines3)\b/i;
const MESSAGES = 'docs/guides/diagnosis.md';
const COMPARISON = 'docs/compare.md';
const TABLE = 'docs/guides/frameworks.md';

const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');
const pages = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md'))
    .map((file) => join('docs', file)),
];
/** The tests that start the scripts. */
const tables = () =>
  readdirSync(join(ROOT, 'test', 'frameworks'))
    .filter((file) => file.endsWith('.ts'))
    .map((file) => read(`test/frameworks/${file}`))
    .join('\n');
/** Without what was copied out of programs: commands and their output. */
const prose = (path: string) => read(path).replaceAll(/^```[\s\S]*?^```/gm, '');

it.each(Object.entries(STARTED))('%s, which pages name, is started by the suite', (name, [called, script, word]) => {
  expect(pages.some((page) => called.test(read(page)))).toBe(true);
  if (script !== undefined) expect(read(`test/frameworks/scripts/${script}`)).toContain(word);
  const started = script?.replace(/(_data)?\.py$/, '') ?? name;
  expect(tables()).toMatch(new RegExp(`(?:\\bthere\\(|: )'${started}'`));
});

it('every entry point that is set up is one that pages name, and every preset one that is started', () => {
  const folders = readdirSync(join(ROOT, 'test', 'frameworks', 'entry-points'));
  expect(folders.filter((name) => !(name in STARTED))).toEqual([]);
  const presets = readdirSync(join(ROOT, 'config', 'presets')).map((file) => file.replace(/\.yaml$/, ''));
  expect(presets.filter((name) => !((PRESETS[name] ?? name) in { ...STARTED, ...NOT_STARTED }))).toEqual([]);
});

it.each(Object.entries(NOT_STARTED))(
  '%s, which CI does not start, is said to be that wherever it is named',
  (_, [called, said]) => {
    expect(read(TABLE)).toMatch(said);
    const naming = pages.filter((page) => called.test(prose(page)));
    const silent = naming.filter((page) => {
      if ([TABLE, MESSAGES, COMPARISON, 'docs/dependencies.md'].includes(page)) return false;
      return !read(page).includes(`(${relative(dirname(page), TABLE)}`);
    });
    expect(silent, `these name it and do not lead to ${TABLE}`).toEqual([]);
  },
);

it.each(pages.filter((page) => page !== MESSAGES && page !== COMPARISON))('%s names no other framework', (page) => {
  expect(OTHERS.exec(prose(page))?.[0] ?? null).toBeNull();
});
