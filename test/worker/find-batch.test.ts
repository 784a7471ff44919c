import { describe, expect, it } from 'vitest';
import type { Observation } from '../../src/tuner/index.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const flags = [python, 'flags.py', '--batch', '{micro_batch}'];

describe('find-batch with real processes', () => {
  it('finds the largest micro-batch of a script that nobody changed, and hardly larger ones do not fit', async () => {
    const bench = workbench('find-batch', [python, 'tiny.py'], { budget: '100MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    const max = report.max_micro_batch as number;
    expect(max).toBeGreaterThan(64);
    const verified = report.probes.filter((probe) => probe.outcome === 'fit').map((probe) => probe.micro_batch);
    expect(verified).toContain(max);
    expect(verified).toContain(report.config?.micro_batch);
    expect(report.probes.some((probe) => probe.micro_batch === max && (probe.life ?? 1) > 1)).toBe(true);
    const failed = report.probes.filter((p) => p.outcome === 'device_oom').map((p) => p.micro_batch);
    const bad = Math.min(...failed, Math.floor(max / 0.98) + 1);
    expect(report.launches).toBeLessThanOrEqual(3);
    expect(bench.recorded.get(report.key)?.max_micro_batch).toBe(max);
    expect(bench.leases()).toBe(0);

    // Processes of their own, at that size and at one 2 % above it, say the same.
    const trial = async (size: number) => {
      const alone = workbench('find-batch', [python, 'tiny.py'], {
        budget: '100MiB',
        minBatch: size,
        maxBatch: size,
      });
      return (
        await findBatch(
          { ...alone.request, options: { ...alone.request.options, amp: 'off', checkpointing: 'off' } },
          alone.deps,
        )
      ).status;
    };
    expect(await trial(max)).toBe('found');
    expect(await trial(bad)).toBe('exhausted');
  });

  it('fills a placeholder and needs no DataLoader', async () => {
    const bench = workbench('find-batch', flags, { budget: '40MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    expect(report.apply?.argv.at(-1)).toBe(String(report.config?.micro_batch));
    expect(report.probes.every((probe) => probe.outcome === 'fit' || probe.outcome === 'device_oom')).toBe(true);
  });

  it.each([
    ['a shape error', 'shape', 'user_error', 'shapes cannot be multiplied', 'shapes'],
    ['a kill from outside', 'kill', 'killed', 'SIGKILL', 'SIGKILL'],
    ['an exit status', 'exit', 'user_error', 'ended with exit code 7', 'exit code 7'],
  ])('never tries %s again with a smaller batch', async (_, fail, failure, evidence, cause) => {
    const bench = workbench('find-batch', [...flags, '--fail', fail]);
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('failed');
    expect(report.failure?.class).toBe(failure);
    expect(report.failure?.evidence).toContain(evidence);
    expect(report.failure?.cause).toContain(cause);
    expect(report.launches).toBe(1);
    expect(bench.recorded.size).toBe(0);
    await bench.noneLeft();
    expect(bench.leases()).toBe(0);
  });

  it.each([
    ['a shell script', ['sh', 'train.sh', python]],
    ['a make target', ['make', 'train', `PYTHON=${python}`]],
  ])('finds the training loop in %s', async (_, command) => {
    const bench = workbench('find-batch', command, { budget: '60MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('found');
    expect(report.config?.micro_batch).toBeGreaterThan(1);
  });

  it('ends a launch that hangs and says that it timed out', async () => {
    const bench = workbench('find-batch', [...flags, '--fail', 'hang'], { timeoutSeconds: 4 });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.failure?.class).toBe('timeout');
    await bench.noneLeft();
  });

  it('tells a script that is not there from one that does not fit', async () => {
    const bench = workbench('find-batch', [python, 'absent.py']);
    const report = await findBatch(bench.request, bench.deps);
    expect(report.failure).toMatchObject({ class: 'user_error' });
    expect(report.failure?.evidence).toContain('absent.py');
  });

  it('says when a script ends before any step', async () => {
    const bench = workbench('find-batch', [python, '-c', 'import torch']);
    const report = await findBatch(bench.request, bench.deps);
    expect(report.failure).toMatchObject({ class: 'user_error' });
    expect(report.failure?.evidence).toContain('no training with PyTorch was seen');
    expect(report.launches).toBe(1);
  });

  it('is exhausted, with the refused line, where the budget is smaller than the model', async () => {
    const bench = workbench('find-batch', [python, 'tiny.py'], { budget: '6MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status).toBe('exhausted');
    expect(report.failure).toMatchObject({ class: 'device_oom' });
    expect(report.failure?.evidence).toBeTruthy();
    await bench.noneLeft();
  });

  it('leaves nothing behind when it is interrupted', async () => {
    const bench = workbench('find-batch', [...flags, '--fail', 'hang']);
    const work = findBatch(bench.request, bench.deps);
    await expect.poll(() => bench.processes().length, { timeout: 20_000 }).toBeGreaterThan(0);
    bench.controller.abort(new Error('interrupted'));
    await expect(work).rejects.toThrow('interrupted');
    await bench.noneLeft();
    expect(bench.leases()).toBe(0);
    expect(bench.recorded.size).toBe(0);
  });

  it('takes up its journal after a crash and tries no size again', async () => {
    const first = workbench('find-batch', [python, 'tiny.py']);
    const whole = await findBatch(first.request, first.deps);
    const journal = first.persisted.findLast((patch) => 'journal' in patch) as { journal: Observation[] };
    const second = workbench('find-batch', [python, 'tiny.py']);
    // One size seems to have been the fastest by far, as on a machine that was busy with something else meanwhile.
    const cut = journal.journal.slice(0, -2).map((o, at) => (at === 1 ? { ...o, step_s: (o.step_s ?? 0) / 100 } : o));
    const again = await findBatch({ ...second.request, journal: cut }, second.deps);
    expect(again.max_micro_batch).toBe(whole.max_micro_batch);
    const known = cut.map((probe) => probe.micro_batch);
    expect(again.probes.slice(0, known.length).map((probe) => probe.micro_batch)).toEqual(known);
    // Both answers have to fit a fresh process. Which sizes are timed once more, in the process that took the largest, goes by their speeds.
    const answers = [again.max_micro_batch, again.config?.micro_batch];
    const added = second.events.flatMap((event) => (event.type === 'probe' ? [event.record] : []));
    const isTimed = ({ why = '' }: (typeof added)[number]) =>
      /may have been busy|^the size to be recommended/.test(why);
    const tried = added.filter((probe) => !isTimed(probe)).map((probe) => probe.micro_batch);
    expect(tried.filter((size) => known.includes(size) && !answers.includes(size))).toEqual([]);
    expect(new Set(tried).size).toBe(tried.length);
    const timed = added.filter(isTimed).map(({ micro_batch, why }) => `${micro_batch}: ${why}`);
    expect(timed).toContain(`${known[1]}: the size to be recommended, in the process that took the largest`);
    expect(new Set(timed).size).toBe(timed.length);
  });
});
