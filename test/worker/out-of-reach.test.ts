import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { nothingFits } from '../../src/cli/errors.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();

describe('a size that does not reach the script', () => {
  it('is said to be that, where its flag is not recognised, and not that nothing fits', async () => {
    const bench = workbench('find-batch', [python, 'ignores_flags.py', '--batch', '{micro_batch}'], {
      budget: '38MiB',
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('failed');
    expect(report.failure?.class).toBe('user_error');
    expect(report.failure?.evidence).toBe(
      'Micro-batch 1 was asked for, the script ran with 64: its flag was not recognised.',
    );
    expect(report.launches).toBe(1);
  });

  it('is said to be that where it fits all the same, and not recommended', async () => {
    const bench = workbench('find-batch', [python, 'ignores_flags.py', '--batch', '{micro_batch}'], {
      budget: '90MiB',
    });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'failed', config: null, failure: { class: 'user_error' } });
    expect(report.failure?.evidence).toMatch(
      /^Micro-batches \d+ and \d+ were asked for, the script ran with 64 both times: its flag was not recognised\.$/,
    );
    expect(report.failure?.advice).toContain('{micro_batch}');
    expect(report.launches).toBeLessThanOrEqual(4);
    expect(bench.recorded.size).toBe(0);
  });

  it('is said of the variable, where that was to bring it', async () => {
    const bench = workbench('find-batch', [python, 'logs_variable.py'], { budget: '38MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.failure?.evidence).toBe(
      'Micro-batch 1 was asked for, the script ran with 64: it does not set its batch size from OOMTUNE_MICRO_BATCH.',
    );
  });

  it('is not said of one that runs out of memory in the process of a larger one', async () => {
    const bench = workbench('find-batch', [python, 'shrinks.py', '--batch', '{micro_batch}'], { budget: '60MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    const shrunk = report.probes.filter(({ outcome }) => outcome === 'device_oom').map((probe) => probe.micro_batch);
    expect(Math.min(...shrunk)).toBeLessThan(report.max_micro_batch as number);
  });

  it.each(['find-batch', 'run'] as const)(
    'is said to be that in a loop without a DataLoader and without a model, by %s',
    async (verb) => {
      const bench = workbench(verb, [python, join('by_hand', 'no_module.py')], { budget: '24MiB' });
      const request = { ...bench.request, foreground: true };
      const report = await (verb === 'run' ? runJob(request, bench.deps) : findBatch(request, bench.deps));
      expect(report.failure?.class).toBe('user_error');
      expect(report.failure?.evidence).toContain('ran out of memory with what it trains on by itself');
      expect(report.failure?.advice).toContain('{micro_batch}');
      expect(report.failure?.advice).toContain('Where every step trains on all of its data at once there is no batch');
      const said = bench.events.flatMap((event) => (event.type === 'said' ? event.lines : []));
      expect(said.join('\n')).toMatch(verb === 'run' ? /File .*no_module\.py[\s\S]*RuntimeError: / : /^$/);
      const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
      expect(notes.filter((note) => said.includes(note))).toEqual([]);
      // run as it stands first, which ran out of memory
      expect(report.launches).toBe(verb === 'run' ? 2 : 1);
    },
  );

  it('is said to be where the script may end, if it fails with it and trained at a smaller one', async () => {
    const bench = workbench('find-batch', [python, 'remembers.py'], { budget: '60MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'failed', failure: { class: 'user_error' } });
    const [, failed, fitted] =
      /^The program raised an error at micro-batch (\d+), and trained at (\d+)\.$/.exec(report.failure?.cause ?? '') ??
      [];
    expect(Number(failed)).toBeGreaterThan(96);
    expect(Number(fitted)).toBeLessThanOrEqual(96);
    expect(report.failure?.advice).toContain(`--max-batch ${fitted} then ends the search there`);
    const within = workbench('find-batch', [python, 'remembers.py'], { budget: '60MiB', maxBatch: Number(fitted) });
    expect(await findBatch(within.request, within.deps)).toMatchObject({
      status: 'found',
      max_micro_batch: Number(fitted),
    });
  });

  it('is said to be that where the script steps its weights without an optimizer', async () => {
    const bench = workbench('run', [python, join('by_hand', 'stepped_by_hand.py')], { budget: '40MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report.failure?.class).toBe('user_error');
    expect(report.failure?.cause).toContain('before it had made a torch optimizer');
    expect(report.failure?.advice).toContain('torch.optim.SGD');
  });

  it('is said to be that where targets without gradients come before the first call that sizes are set at', async () => {
    const bench = workbench('run', [python, join('by_hand', 'targets_first.py')], { budget: '10MiB', amp: 'off' });
    const report = await runJob(bench.request, bench.deps);
    expect(report.failure?.class).toBe('user_error');
    expect(report.failure?.cause).toContain('in what it computes without gradients for its first training step');
    expect(report.failure?.advice).toContain('after the step’s own call of the model');
  });

  it('is not followed by another run as it stands where that is known to run out of memory', async () => {
    const bench = workbench('run', [python, 'whole_batches.py'], { budget: '38MiB', cut: 'loader' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'exhausted', exit_code: null, failure: { class: 'device_oom' } });
    expect(report.failure?.cause).toContain('ran out of memory at its own batch of 64');
    expect(report.failure?.advice).toContain('{micro_batch}');
    expect(bench.events.filter((event) => event.type === 'running')).toHaveLength(1);
  });

  it('is said to be that, with what the script said, where it does not start over what its first attempt made', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'oomtune-once-'));
    // A fork of the job comes from behind the script's look at the folder, a start does not.
    const command = [python, 'starts_once.py', join(folder, 'made')];
    const bench = workbench('run', command, { budget: '50MiB', fork: false });
    const report = await runJob(bench.request, bench.deps);
    rmSync(folder, { recursive: true });
    expect(report).toMatchObject({ outcome: 'exhausted', failure: { class: 'device_oom', cure: 'none' } });
    expect(report.failure?.advice).toContain(
      'it said last: Error. Experiment already exists. Use --name to name another.',
    );
    expect(nothingFits(report.failure)).toContain('no smaller one could be set');
  });

  it('is said of a job that ends well and trains nothing, as its search has made what it does not start over', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'oomtune-once-'));
    const command = [python, 'starts_once.py', join(folder, 'made')];
    // With another batch than its own it is searched for before it runs.
    const options = { budget: '90MiB', effectiveBatch: 256, cut: 'loader', fork: false } as const;
    const bench = workbench('run', command, options);
    const report = await runJob(bench.request, bench.deps);
    rmSync(folder, { recursive: true });
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    const said = expect.stringMatching(/no training was seen in it; it said last: Error\. Experiment already exists\./);
    expect(bench.events).toContainEqual({ type: 'note', text: said });
  });
});
