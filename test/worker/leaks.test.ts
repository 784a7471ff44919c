import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

/** Loops that keep what each step makes, and the variable and line that do. */
const LEAKS = [
  ['losses with their graphs in a list', 'keeps_losses.py', '`losses` (keeps_losses.py:15: losses.append(loss))'],
  ['outputs in the cache of an object', 'cache.py', '`trainer.cache` (cache.py:16: self.cache[index] = out.detach())'],
  ['the graphs of all losses in their sum', 'carries_graph.py', '`total` (carries_graph.py:16: total += loss)'],
] as const;

describe('a loop that keeps', () => {
  it.each(LEAKS)('%s gets no recommendation, and is told what keeps them', async (_, script, keeper) => {
    const bench = workbench('find-batch', [python, script], { budget: '120MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({
      status: 'exhausted',
      config: null,
      failure: { class: 'device_oom', reason: 'leak' },
    });
    expect(report.failure?.evidence).toMatch(/^Memory grows by .* with every step, kept by .* no batch size helps/);
    expect(report.failure?.evidence).toContain(keeper);
    expect(report.launches).toBeLessThanOrEqual(2);
    expect(bench.recorded.size).toBe(0);
  });

  it('what it needs no more in reference cycles is told that collecting garbage helps', async () => {
    const bench = workbench('find-batch', [python, 'cycles.py'], { budget: '120MiB' });
    const { failure } = await findBatch(bench.request, bench.deps);
    expect(failure).toMatchObject({ class: 'device_oom', reason: 'leak' });
    expect(failure?.evidence).toMatch(/kept by reference cycles that Python frees only now and then \(gc\.collect\(\)/);
  });

  // In ten steps both look alike: 160 KiB more with each, which fill the budget within 2,000 steps.
  it('a little of each step for ever is told from a history that is full after twenty steps', async () => {
    const ever = workbench('find-batch', [python, 'warms_up.py', 'ever'], { budget: '400MiB' });
    const leak = await findBatch(ever.request, ever.deps);
    expect(leak).toMatchObject({ status: 'exhausted', failure: { class: 'device_oom', reason: 'leak' } });
    expect(leak.failure?.evidence).toMatch(
      /^Memory grows by 160 KiB with every step, kept by `history` \(warms_up\.py/,
    );
    const twenty = workbench('find-batch', [python, 'warms_up.py', 'twenty'], { budget: '400MiB' });
    const { status, failure, notes } = await findBatch(twenty.request, twenty.deps);
    expect(status, failure?.evidence ?? '').toBe('found');
    expect(notes.join(' ')).not.toContain('Memory grows');
  });

  // A library compiles kernels for each shape that is new to it: 40 steps have not seen all of them.
  it('a little of each new shape of its inputs gets a recommendation, and the same of each step does not', async () => {
    const shapes = workbench('find-batch', [python, 'new_shapes.py', 'shapes'], { budget: '100MiB', maxBatch: 64 });
    const { status, failure } = await findBatch(shapes.request, shapes.deps);
    expect(status, failure?.evidence ?? '').toBe('found');
    const steps = workbench('find-batch', [python, 'new_shapes.py', 'steps'], { budget: '100MiB', maxBatch: 64 });
    const leak = await findBatch(steps.request, steps.deps);
    expect(leak).toMatchObject({ status: 'exhausted', failure: { class: 'device_oom', reason: 'leak' } });
    expect(leak.failure?.evidence).toMatch(/^Memory grows by .* with every step/);
  });

  // At these budgets the script's own batch lasts for less than 200 steps, and the run itself shows it.
  it.each([
    ['keeps_losses.py', '50MiB'],
    ['cache.py', '120MiB'],
    ['carries_graph.py', '60MiB'],
  ])('%s is not launched again and again by a run', async (script, budget) => {
    const bench = workbench('run', [python, script], { budget });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, launches: 1 });
    expect(report.failure).toMatchObject({ class: 'device_oom', reason: 'leak', cure: 'none' });
    expect(bench.recorded.size).toBe(0);
    await bench.noneLeft();
  });

  // What an epoch leaves behind no probe sees: the run itself tells, the first time that it dies.
  it('the weights of every epoch is launched once, and told what keeps them', async () => {
    const bench = workbench('run', [python, 'keeps_weights.py'], { budget: '100MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', exit_code: 1, config: { micro_batch: 64, accumulation: 1 } });
    expect(report.failure).toMatchObject({ class: 'device_oom', reason: 'leak', cure: 'none' });
    expect(report.failure?.cause).toContain(
      '`best` (keeps_weights.py:20: best.append(copy.deepcopy(model.state_dict())))',
    );
    expect(bench.events.filter((event) => event.type === 'running')).toHaveLength(1);
    await bench.noneLeft();
  });

  it('arrays is told so by itself, also where a library in C ends the process without an error of Python', async () => {
    const bench = workbench('run', [python, 'keeps_arrays.py'], { budget: '80MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', failure: { class: 'device_oom', reason: 'leak', cure: 'none' } });
    expect(report.failure?.cause).toContain('kept by `outputs` (keeps_arrays.py:21: outputs.append(');
    expect(bench.events.filter((event) => event.type === 'running')).toHaveLength(1);
  });

  it('losses runs as it stands where that lasts for a while, and is told for how long', async () => {
    const bench = workbench('run', [python, 'keeps_losses.py'], { budget: '400MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, config: { micro_batch: 64 } });
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes.join('\n')).toMatch(/Memory grows by .* kept by `losses` .* full after about \d+ steps/);
  });
});

describe('a loop that keeps a number of each step', () => {
  it('is no leak', async () => {
    const bench = workbench('find-batch', [python, 'tiny.py'], { budget: '60MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    expect(report.notes.join(' ')).not.toContain('grows');
  });
});

// 64 numbers and a class are 264 bytes a sample.
describe('a loop whose loader itertools.cycle goes over', () => {
  const peakOf = async (labelled: number, others: number): Promise<number> => {
    const command = [python, 'cycles_batches.py', String(labelled), String(others)];
    const bench = workbench('find-batch', command, { budget: '50MiB' });
    const { status, failure } = await findBatch(bench.request, bench.deps);
    expect(status, failure?.evidence ?? '').toBe('found');
    const probes = bench.events.flatMap((event) => (event.type === 'probe' ? [event.observation] : []));
    const smallest = probes.find((seen) => seen.micro_batch === 1);
    return (smallest?.peaks.total_bytes ?? 0) / 1024 ** 2;
  };

  it('is no leak: a pass over the data is kept, and counts; fewer where what it is zipped with ends before', async () => {
    const [few, many, fewAsked] = [
      await peakOf(512, 162_048),
      await peakOf(40_512, 162_048),
      await peakOf(40_512, 2048),
    ];
    expect(many - few).toBeGreaterThan((40_000 * 264) / 1024 ** 2);
    expect(many - few).toBeLessThan(1.6 * ((40_000 * 264) / 1024 ** 2));
    expect(fewAsked - few).toBeLessThan(3);
  });

  it('is told what keeps the batches where the budget does not hold a pass', async () => {
    const bench = workbench('find-batch', [python, 'cycles_batches.py', '800000', '4000000'], { budget: '120MiB' });
    const { status, failure } = await findBatch(bench.request, bench.deps);
    expect({ status, reason: failure?.reason }).toEqual({ status: 'exhausted', reason: 'leak' });
    expect(failure?.evidence).toContain('kept by itertools.cycle, which keeps every batch of its first pass');
  });
});
