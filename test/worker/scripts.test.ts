import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { closingSize } from '../../src/tuner/sizes.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'oomtune-scripts-'));
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function search(command: string[], budget = '60MiB') {
  const bench = workbench('find-batch', command, { budget });
  const report = await findBatch(bench.request, bench.deps);
  await bench.noneLeft();
  return report;
}

describe('a search on scripts as people write them', () => {
  it('goes on in another process where the training is shorter than the search', async () => {
    const report = await search([python, 'short.py']);
    expect(report.status).toBe('found');
    expect(new Set(report.probes.map((probe) => probe.life)).size).toBeGreaterThan(2);
    const same = await search([python, 'tiny.py']);
    const apart = Math.abs((report.max_micro_batch as number) - (same.max_micro_batch as number));
    expect(apart, JSON.stringify([report, same])).toBeLessThan(10);
  });

  it.each([4, 2])('measures what there is of a loop of %i steps, each size in a process of its own', async (steps) => {
    const bench = workbench('find-batch', [python, 'few_steps.py', String(steps)], {
      budget: '60MiB',
      steps: 5,
      maxBatch: 8,
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'found', max_micro_batch: 8, verified_steps: steps });
    expect(report.probes.map((probe) => probe.steps)).toEqual(report.probes.map(() => steps));
  });

  it('lets a script read back what it saves after a training that is shorter than the search, and leaves none of it', async () => {
    const bench = workbench('find-batch', [python, 'reads_back.py', folder, '{micro_batch}'], {
      budget: '60MiB',
      maxBatch: 8,
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report, JSON.stringify(report.failure)).toMatchObject({ status: 'found', max_micro_batch: 8 });
    expect(readdirSync(folder)).toEqual([]);
  });

  it('says of a loop of one step that it is too short to measure', async () => {
    const report = await search([python, 'few_steps.py', '1']);
    expect(report.failure?.evidence).toContain('before it had made 2 optimizer steps');
  });

  it('keeps a script in its loop that accumulates and would leave it between two steps, and counts all its batches', async () => {
    const bench = workbench('find-batch', [python, 'between.py'], { budget: '60MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'found', launches: 1, config: { accumulation: 2 } });
    const shown = bench.events.flatMap((event) =>
      event.type === 'probe' && event.record.micro_batch === report.config?.micro_batch
        ? [event.record.samples_per_s]
        : [],
    );
    expect(shown).toContain(report.samples_per_s);
  });

  it('says that a script uses its batch size elsewhere too', async () => {
    const report = await search([python, 'constant.py']);
    expect(report.failure?.class).toBe('user_error');
    expect(report.failure?.evidence).toContain('Expected hidden size');
    expect(report.failure?.advice).toContain('own batch of 8');
    expect(report.failure?.advice).toContain('{micro_batch}');
    expect(report.failure?.advice).toContain('--min-batch');
    // Nor did it only need more samples: two and half of its own were tried.
    expect(report.failure?.advice).toContain('fails with 4');
    expect(report.probes.map((probe) => probe.micro_batch)).toEqual([1, 2, 4]);
  });

  it('begins at more samples where the loss of a script cannot be had of one', async () => {
    const report = await search([python, 'hardest_pairs.py'], '60MiB');
    expect(report, JSON.stringify(report.failure)).toMatchObject({ status: 'found', own: { micro_batch: 32 } });
    expect(report.probes.slice(0, 3)).toMatchObject([
      { micro_batch: 1, outcome: 'user_error' },
      { micro_batch: 2, outcome: 'user_error' },
      { micro_batch: 8, outcome: 'fit' },
    ]);
    expect(report.notes?.join(' ')).toContain('so the sizes begin at 8: --min-batch sets another');
    // Its variable had no part in that.
    expect(report.notes?.join(' ')).not.toContain('its variables');
  });

  it('blames no such script whose own batch does not fit', async () => {
    const report = await search([python, 'elsewhere.py'], '28MiB');
    expect(report.status, JSON.stringify(report.failure)).toBe('exhausted');
    expect(report.failure?.advice).toContain('Give a larger --budget');
  });

  it('sets the variables of a script that uses the batch size of its DataLoader in its loop, too', async () => {
    const report = await search([python, 'elsewhere.py'], '120MiB');
    expect(report, JSON.stringify(report.failure)).toMatchObject({ status: 'found', own: { micro_batch: 32 } });
    const max = report.max_micro_batch as number;
    expect(max).toBeGreaterThan(32);
    // Nobody but the script makes other batches: no command is offered that would have to.
    expect(report.apply?.oomtune).toEqual(report.apply?.own);
    expect(report.notes?.join(' ')).toContain('its variables that hold it were set with it');
    const text = readFileSync(join(FIXTURES, 'elsewhere.py'), 'utf8');
    const really = async (rows: number) => {
      writeFileSync(join(folder, 'elsewhere.py'), text.replace('batch_size = 32', `batch_size = ${rows}`));
      const bench = workbench('run', [python, join(folder, 'elsewhere.py')], { budget: '120MiB', tune: false });
      return runJob(bench.request, bench.deps);
    };
    expect(await really(max)).toMatchObject({ outcome: 'succeeded' });
    expect((await really(closingSize(max))).failure?.class).toBe('device_oom');
  });

  it.each([
    [
      'no DataLoader',
      'import torch\np = torch.ones(1, requires_grad=True)\no = torch.optim.SGD([p], 1)\nwhile True: p.sum().backward(); o.step()',
      'without a torch DataLoader',
    ],
    ['no torch', 'import math', 'no training with PyTorch was seen'],
  ])('says what to do about a script with %s', async (_, text, evidence) => {
    const report = await search([python, '-c', text]);
    expect(report.failure?.evidence).toContain(evidence);
    expect(report.failure?.advice).toContain('{micro_batch}');
  });

  it('lets nothing run that follows the training in a shell script', async () => {
    const mark = join(folder, 'mark');
    const report = await search(['sh', 'afterwards.sh', python, mark]);
    expect(report.status).toBe('found');
    expect(existsSync(mark)).toBe(false);
  });

  it('sees the training, and its end for want of memory, in a process that the script spawns', async () => {
    const mark = join(folder, 'mark');
    const report = await search([python, 'spawns.py', mark]);
    expect(report.status).toBe('found');
    expect(report.probes.some((probe) => probe.outcome === 'device_oom')).toBe(true);
    expect(existsSync(mark)).toBe(false);
  });
});
