import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from '../cli/oomtune.js';

/** What the suite starts for real: what pages call it, and the file that starts it, with a word of it. */
const STARTED: Record<string, [called: RegExp, file: string, word: string]> = {
  transformers: [/\btransformers\b|Hugging Face Trainer/i, 'test/frameworks/scripts/hf_trainer.py', 'transformers'],
  accelerate: [/\baccelerate\b/i, 'test/frameworks/scripts/accelerate_loop.py', 'accelerate'],
  trl: [/\bTRL\b/i, 'test/frameworks/scripts/trl_sft.py', 'trl'],
  peft: [/\bPEFT\b/i, 'test/frameworks/scripts/trl_sft.py', 'peft'],
  lightning: [/\bLightning(?:CLI)?\b/i, 'test/frameworks/scripts/lightning_cli.py', 'lightning'],
  timm: [/\btimm\b/i, 'test/frameworks/scripts/timm_loop.py', 'timm'],
  ultralytics: [/\b(?:Ultralytics|YOLO)\b/i, 'test/frameworks/scripts/yolo_data.py', 'yolo'],
  pyg: [/\bPyG\b/i, 'test/frameworks/scripts/pyg_graphs.py', 'torch_geometric'],
  hydra: [/\bHydra\b/i, 'test/frameworks/scripts/hydra_app.py', 'hydra'],
  webdataset: [/\bwebdataset\b/i, 'test/frameworks/scripts/web_pipeline.py', 'webdataset'],
  torchvision: [/\btorchvision\b/i, 'test/frameworks/scripts/torchvision_detection.py', 'torchvision'],
  torchtune: [/\btorchtune\b/i, 'test/frameworks/entry-points/torchtune.txt', 'torchtune=='],
  litgpt: [/\bLitGPT\b/i, 'test/frameworks/entry-points/litgpt.txt', 'litgpt=='],
  axolotl: [/\bAxolotl\b/i, 'test/frameworks/entry-points/axolotl.txt', 'axolotl=='],
  deepspeed: [/\bDeepSpeed\b/i, 'test/frameworks/entry-points/deepspeed.txt', 'deepspeed=='],
};

/** What it does not start: what frameworks.md has to say of it. */
const NOT_STARTED: Record<string, [called: RegExp, said: RegExp]> = {
  'llama-factory': [/\bLLaMA-Factory\b|\bllamafactory\b/i, /LLaMA-Factory \(`llama-factory`\) \| no;/],
  fairseq: [/\bfairseq\b/i, /fairseq \(`fairseq`\)[^|]* \| no;/],
  torchtitan: [/\btorchtitan\b/i, /torchtitan \(`torchtitan`\)[^|]* \| no\b/],
  nanogpt: [/\bnanoGPT\b/i, /nanoGPT \(`nanogpt`\)[^|]*\|[^|]*none of the scripts/],
  karpathy: [/\b(?:minGPT|makemore)\b/i, /pytorch\/examples, minGPT, makemore/],
  jax: [/\b(?:JAX|Flax|Optax)\b/i, /JAX \(listed there;/],
  libtorch: [/\blibtorch\b/i, /C\+\+ program has a row too/],
};

/** Named for another reason: whose messages are read, and what else there is to choose from. */
const OTHERS =
  /\b(?:TensorFlow|Keras|Paddle|CuPy|Megatron|Colossal-?AI|NeMo|unsloth|MMDetection|Detectron2?|fastai|Horovod|vLLM|SGLang|Composer|Catalyst|Ignite|diffusers|stable-baselines3)\b/i;
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

it.each(Object.entries(STARTED))('%s, which pages name, is started by the suite', (_, [called, file, word]) => {
  expect(pages.some((page) => called.test(read(page)))).toBe(true);
  expect(read(file)).toContain(word);
  expect(tables()).toContain(`'${basename(file).replace(/(_data)?\.(py|txt)$/, '')}'`);
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
