import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { JobRecord } from '../../src/contract/job.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const current = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (current === '') {
  process.stderr.write(
    'SKIPPED: loops without a DataLoader under a current torch, as OOMTUNE_TEST_FRAMEWORKS names no interpreter\n',
  );
}
const pythons = [
  { torch: 'the system’s torch', python: pythonWithTorch() },
  ...(current === '' ? [] : [{ torch: 'a current torch', python: current }]),
];
/** A start costs a current torch seven seconds; what each form of loop asks of the hook, test_loaderless.py holds under both. */
const underCurrent = ['get_batch.py', 'on_device.py', 'time_first.py'];

/** Loops that make their batches by hand: what each asks for by itself, and the word that sets it for real. */
const LOOPS = [
  {
    script: 'get_batch.py',
    more: '160MiB',
    own: 12,
    budget: '60MiB',
    word: (rows: number) => [`--batch_size=${rows}`],
  },
  { script: 'indexed.py', more: '160MiB', own: 64, budget: '60MiB', word: (rows: number) => [String(rows)] },
  {
    script: 'on_device.py',
    more: '160MiB',
    own: 256,
    budget: '60MiB',
    word: (rows: number) => ['--batch-size', String(rows)],
  },
  {
    script: 'minibatches.py',
    more: '120MiB',
    own: 128,
    budget: '70MiB',
    word: (rows: number) => ['--minibatch-size', String(rows)],
  },
  {
    script: 'time_first.py',
    more: '160MiB',
    own: 20,
    budget: '60MiB',
    word: (rows: number) => ['--batch_size', String(rows)],
  },
];
const scriptOf = (name: string): string => join('by_hand', name);

/** How the script ends that makes batches of so many rows by itself, watched by nothing but the budget. */
async function really(python: string, script: string, words: string[], budget: string) {
  const bench = workbench('run', [python, scriptOf(script), ...words], { budget, tune: false });
  return runJob(bench.request, bench.deps);
}

/** A current torch holds some MiB of its own, now more and now fewer: under a larger budget they are no part of it. */
const budgetFor = (python: string, more: string, usual: string): string => (python === current ? more : usual);

describe.each(pythons)('a loop without a DataLoader, under $torch', ({ python }) => {
  const loops = LOOPS.filter(({ script }) => python !== current || underCurrent.includes(script));
  it.each(loops)('is driven where it calls its model, to sizes that hold for real: $script', async (loop) => {
    const { script, own, word } = loop;
    const budget = budgetFor(python, loop.more, loop.budget);
    const bench = workbench('find-batch', [python, scriptOf(script)], { budget });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    // One that searches and one that proves; another where a size ran out of memory. It was one for each size.
    expect(report.launches).toBeLessThanOrEqual(3);
    expect(report.own?.micro_batch).toBe(own);
    const max = report.max_micro_batch as number;
    expect(max).toBeGreaterThan(own);
    // Nobody but the script makes other batches: no command is offered that would have to.
    expect(report.apply?.oomtune).toEqual(report.apply?.own);
    expect(report.notes?.join(' ')).toContain('makes its batches without a DataLoader');
    const isLarger = (report.config?.micro_batch ?? 0) > own;
    expect(report.notes?.join(' ').includes('Samples were repeated where it made fewer than that')).toBe(isLarger);
    const fits = await really(python, script, word(max), budget);
    expect(fits).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    const more = await really(python, script, word(Math.ceil(max * 1.05)), budget);
    expect(more.failure?.class).toBe('device_oom');
  });

  it('is driven from its first call on where it speaks of a DataLoader, and its own batch does not fit', async () => {
    const script = 'speaks_of_loaders.py';
    const budget = budgetFor(python, '160MiB', '100MiB');
    const bench = workbench('find-batch', [python, scriptOf(script)], { budget });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status, JSON.stringify(report.failure)).toBe('found');
    const max = report.max_micro_batch as number;
    expect(max).toBeLessThan(4096);
    expect(await really(python, script, ['--batch-size', String(max)], budget)).toMatchObject({ outcome: 'succeeded' });
    const more = await really(python, script, ['--batch-size', String(Math.ceil(max * 1.05))], budget);
    expect(more.failure?.class).toBe('device_oom');
  });

  if (python === current) return; // how sizes are given to processes is the worker's, the same under any torch

  it('goes on in the process that a flag brought its first size to', async () => {
    const words = [python, scriptOf('get_batch.py'), '--batch_size={micro_batch}'];
    const budget = budgetFor(python, '160MiB', '40MiB');
    const report = await findBatch(...deps(workbench('find-batch', words, { budget })));
    expect(report).toMatchObject({ status: 'found', own: null });
    expect(report.launches).toBeLessThanOrEqual(3);
    expect(report.apply?.oomtune).toContain('--effective-batch');
  });

  it.each([
    { fork: false, lives: 'starts' },
    { fork: true, lives: 'forks' },
  ])('gives each size a process where a second one fails in that of the first: $lives', async ({ fork }) => {
    const words = [python, scriptOf('one_size.py'), '--batch_size={micro_batch}'];
    const bench = workbench('find-batch', words, { budget: '60MiB', maxBatch: 64, fork });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.failure ?? null).toBeNull();
    expect(report.max_micro_batch).toBe(64);
    expect(report.probes.every(({ outcome }) => outcome === 'fit')).toBe(true);
    const processes = fork ? new Set(report.probes.map(({ life }) => life)).size : report.launches;
    expect(processes).toBeGreaterThan(2);
    if (fork) expect(report.launches).toBe(1);
    expect(report.notes?.join()).toMatch(
      /Each size takes a process of its own: a second one failed in that of the first \(\w+Error: /,
    );
  });
});

const deps = ({ request, deps }: ReturnType<typeof workbench>) => [request, deps] as const;

const { python } = pythons[0] as (typeof pythons)[0];

describe('run, of a loop without a DataLoader', () => {
  it.each([
    { script: 'get_batch.py', words: ['--batch_size=300', '--max_iters=4'], budget: '50MiB', accumulated: 2 },
    { script: 'indexed.py', words: ['1000'], budget: '60MiB', accumulated: 1 },
    { script: 'minibatches.py', words: ['--minibatch-size', '2048'], budget: '50MiB', accumulated: 1 },
    { script: 'time_first.py', words: ['--batch_size', '256'], budget: '40MiB', accumulated: 1 },
    // Its own batch fails before it is seen whether a loader is asked: what fits is searched from its first call on.
    { script: 'speaks_of_loaders.py', words: ['--batch-size', '2048'], budget: '120MiB', accumulated: 1 },
    // As pyro does it: the batch that does not fit comes before the optimizer.
    { script: 'late_optimizer.py', words: ['2048'], budget: '80MiB', accumulated: 1 },
  ])('cuts its batches where they do not fit, to the weights of the uncut run: $script', async (loop) => {
    const folder = mkdtempSync(join(tmpdir(), 'oomtune-by-hand-'));
    const [cut, uncut] = [join(folder, 'cut'), join(folder, 'uncut')];
    const bench = workbench('run', [python, scriptOf(loop.script), ...loop.words], {
      budget: loop.budget,
      preset: 'auto',
    });
    bench.request.environment.SAVE = cut;
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, cut: { cut: 'model' } });
    // The job, a search in a start of its own at most, and the job again.
    const record = Object.assign({}, ...bench.persisted) as JobRecord;
    expect(record.launches.length).toBeLessThanOrEqual(3);
    const whole = Number(/\d+/.exec(loop.words.join(' '))?.[0]);
    expect(report.config?.accumulation).toBeGreaterThan(loop.accumulated);
    expect(report.config?.effective_batch).toBe(whole * loop.accumulated);
    const run = await reallySaved(python, loop.script, loop.words, uncut);
    expect(run.exit_code).toBe(0);
    expect(difference(cut, uncut)).toBeLessThan(1e-9);
  });

  it('says that no other batches can be made of its own', async () => {
    const bench = workbench('run', [python, scriptOf('indexed.py')], { budget: '60MiB', effectiveBatch: 128 });
    const report = await runJob(bench.request, bench.deps);
    expect(report.exit_code).toBe(1);
    expect(report.failure?.evidence).toContain('makes its batches of 64 without a DataLoader');
    expect(report.failure?.advice).toContain('{micro_batch}');
  });
});

describe('a loop that cannot be driven at its model’s call', () => {
  it('is told so where what goes into the model has no row for each sample', async () => {
    const bench = workbench('find-batch', [python, scriptOf('graph.py')]);
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'failed', launches: 1 });
    expect(report.failure?.evidence).toContain('what its model is called with has no row for each sample');
    expect(report.failure?.advice).toContain('{micro_batch}');
  });

  it('is none where its model is in evaluation mode from the beginning', async () => {
    const bench = workbench('find-batch', [python, scriptOf('evaluation_mode.py')], { budget: '60MiB' });
    expect(await findBatch(bench.request, bench.deps)).toMatchObject({ status: 'found', own: { micro_batch: 32 } });
  });

  it('is told so where its model is left in evaluation mode', async () => {
    const bench = workbench('find-batch', [python, scriptOf('left_in_evaluation_mode.py')]);
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'failed', launches: 1 });
    expect(report.failure?.evidence).toContain('The training loop ended before it had made 2 optimizer steps');
    expect(report.failure?.advice).toContain('{micro_batch}');
  });

  it('is told so where its code has the number elsewhere too', async () => {
    const bench = workbench('find-batch', [python, scriptOf('fixed.py')]);
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('failed');
    expect(report.failure?.advice).toContain('could not be set at the model’s call');
    expect(report.failure?.advice).toContain('{micro_batch}');
  });
});

async function reallySaved(python: string, script: string, words: string[], path: string) {
  const bench = workbench('run', [python, scriptOf(script), ...words], { budget: '1GiB', tune: false });
  bench.request.environment.SAVE = path;
  return runJob(bench.request, bench.deps);
}

/** The largest difference between two files' weights, relative to the largest weight. */
function difference(one: string, other: string): number {
  const code =
    'import sys, torch\na, b = (torch.load(p) for p in sys.argv[1:])\n' +
    'print(max(float((a[k] - b[k]).abs().max() / b[k].abs().max()) for k in b))';
  return Number(execFileSync(python, ['-c', code, one, other], { encoding: 'utf8' }));
}
