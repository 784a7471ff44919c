import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { applyRecommendation } from '../../src/cli/apply.js';
import { sizedBy } from '../../src/cli/cluster/allotment.js';
import { renderRecommendations } from '../../src/cli/recommend-view.js';
import { DEFAULT_OPTIONS } from '../../src/contract/options.js';
import { openStore } from '../../src/store/index.js';
import { useHome } from '../store/home.js';
import { recommendation } from '../store/samples.js';
import { PROGRAM } from './oomtune.js';

const home = useHome();

const plain = (_: string, text: string): string => text;

describe('a recorded configuration that did not hold in use', () => {
  const demoted = {
    ...recommendation(),
    status: 'demoted' as const,
    micro_batch: 4096,
    max_micro_batch: 5255,
    known_bad_micro_batch: 2048,
  };

  it('is shown as no recommendation, below what failed', () => {
    const shown = renderRecommendations([demoted], plain);
    expect(shown).toMatch(/recommended +none: .*4096.* ran out of memory in a run/);
    expect(shown).toMatch(/largest +micro-batch below 2048/);
    expect(shown).not.toContain('5255');
  });

  it('is shown so among others, too', () => {
    const shown = renderRecommendations([demoted, recommendation()], plain);
    expect(shown).toContain('below 2048');
    expect(shown).not.toMatch(/4096|5255/);
  });

  it('keeps its largest where what failed is above it', () => {
    expect(renderRecommendations([{ ...demoted, known_bad_micro_batch: 6000 }], plain)).toMatch(
      /largest +micro-batch 5255/,
    );
  });
});

describe('a job that fits as it stands', () => {
  it('tells no largest size: larger ones were not tried', () => {
    const [probe] = recommendation().probes;
    if (!probe) throw new Error('the sample has no probes');
    const kept = recommendation({
      micro_batch: 512,
      max_micro_batch: 512,
      known_bad_micro_batch: null,
      probes: [{ ...probe, micro_batch: 512 }],
    });
    expect(renderRecommendations([kept], plain)).toMatch(/largest +not known: larger ones than 512 were not tried/);
  });
});

describe('oomtune recommend', () => {
  it('shows nothing of a size that a run has shown not to hold', async () => {
    const store = await openStore();
    const found = recommendation({ micro_batch: 4096, max_micro_batch: 5255, known_bad_micro_batch: null });
    await store.recommendations.put(found, null);
    await store.recommendations.demote(found.key, 2048, null);
    const shown = (...more: string[]) =>
      execFileSync(PROGRAM, ['recommend', ...more], { encoding: 'utf8', env: { ...process.env, OOMTUNE_HOME: home } });
    for (const text of [shown(), shown(found.name)]) {
      expect(text).toContain('below 2048');
      expect(text).toContain('demoted');
      expect(text).not.toContain('5255');
      expect(text).not.toMatch(/largest +(?:micro-batch )?\d/);
    }
    expect(JSON.parse(shown('--json', found.name))).toMatchObject({
      recommendations: [{ status: 'demoted', known_bad_micro_batch: 2048 }],
    });
    await store.close();
  });
});

it('is filled in with every knob that it was found with', async () => {
  const found = recommendation({ checkpointing: true, offload: true });
  const { config } = await applyRecommendation([found], found.name, ['python', 'train.py']);
  expect(config).toMatchObject({ amp: 'bf16', checkpointing: true, offload: true });
});

it('is filled into a command over several machines by its own flags alone, as oomtune would refuse it', async () => {
  const found = recommendation();
  const apply = (...words: string[]) => applyRecommendation([found], found.name, words);
  const command = ['torchrun', '--nnodes', '2', 'train.py'];
  await expect(apply(...command)).rejects.toMatchObject({
    code: 'OOMTUNE_USAGE',
    message: expect.stringContaining('on 2 machines (--nnodes)'),
    remedy: expect.stringContaining('{micro_batch}'),
  });
  const words = ['--batch={micro_batch}', '--times={accumulation}', '--amp={amp}', '--saved={checkpointing}'];
  const { argv } = await apply(...command, ...words);
  expect(argv.slice(0, 5)).toEqual([...command, `--batch=${found.micro_batch}`]);
});

it('on the host is named with no GPUs, which the command is refused with there', async () => {
  const found = recommendation({ key: 'gpt:cpu:300m:2x', world_size: 2 });
  const words = ['torchrun', '--nproc-per-node', '2', 'train.py'];
  const { argv } = await applyRecommendation([found], found.name, words);
  expect(argv.join(' ')).toMatch(/^oomtune run .*--device cpu .*-- torchrun --nproc-per-node 2 train.py$/);
  expect(argv).not.toContain('--gpus');
  expect(sizedBy(DEFAULT_OPTIONS, found)).toMatchObject({ device: 'cpu', gpus: 1 });
  const onGpus = recommendation({ world_size: 2 });
  expect((await applyRecommendation([onGpus], onGpus.name, words)).argv.join(' ')).toContain('--gpus 2');
});
