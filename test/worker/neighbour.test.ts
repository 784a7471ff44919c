import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';
import { withGpu } from './stand-in-gpu.js';

const python = pythonWithTorch();
const GIB = 1024 ** 3;
/** Fails at its first launch as torch does beside a neighbour. */
const SCRIPT = `import os
if os.environ["OOMTUNE_LAUNCH"] == "1":
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free. Process 4242 has 70.00 GiB memory in use. Including non-PyTorch memory, this process has 9.00 GiB memory in use.")
print("trained")
`;
const neighbour = { pid: 4242, name: 'python', used_bytes: 70 * GIB, ours: false, job: null };

describe('a job that runs out of memory beside a neighbour', () => {
  function bench() {
    const options = { device: 'cuda:0', budget: null, tune: false } as const;
    const made = workbench('run', [python, '-c', SCRIPT], options);
    let looks = 0;
    let stays = false;
    withGpu(made, () => {
      looks += 1;
      const held = stays || looks < 6;
      return held ? { used_bytes: 70 * GIB, processes: [neighbour] } : {};
    });
    return { ...made, looks: () => looks, keep: () => (stays = true) };
  }

  it('is launched again at the same size once the memory is free', async () => {
    const { request, deps, events } = bench();
    const report = await runJob(request, deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, launches: 2 });
    const waits = events.flatMap((event) => (event.type === 'waiting' ? [event.reason] : []));
    expect(waits).toHaveLength(1);
    expect(waits[0]).toContain('on cuda:0 that other processes hold');
  });

  it('ends where it is told to while it waits', async () => {
    const { request, deps, events, controller, keep } = bench();
    keep();
    const work = runJob(request, deps);
    await expect.poll(() => events.some((event) => event.type === 'waiting'), { timeout: 30_000 }).toBe(true);
    controller.abort(new Error('cancelled'));
    expect(await work).toMatchObject({ outcome: 'cancelled', launches: 1 });
  });
});

describe('a search whose probe runs out of memory that another process holds', () => {
  /** A process that runs until it is told to end, and holds most of the stand-in for as long. */
  function beside(purpose: 'find-batch' | 'run', held: () => boolean) {
    const bench = workbench(purpose, [python, 'crowded.py'], { device: 'cuda:0', budget: null });
    const process = spawn('sleep', ['120'], { stdio: 'ignore' });
    bench.request.environment.NEIGHBOUR = String(process.pid);
    const own = { ...neighbour, pid: process.pid as number };
    withGpu(bench, () =>
      held() && process.exitCode === null && process.signalCode === null
        ? { used_bytes: 70 * GIB, processes: [own] }
        : {},
    );
    const waits = () => bench.events.flatMap((event) => (event.type === 'waiting' ? [event.reason] : []));
    const leave = async () => {
      process.kill();
      await once(process, 'exit');
    };
    return { ...bench, waits, leave };
  }

  it.each(['find-batch', 'run'] as const)(
    'waits until it is free and measures the same size again (%s)',
    async (purpose) => {
      // The other process begins after the search: nothing of it is there when the device is reserved.
      let begun = false;
      const { request, deps, events, waits, leave } = beside(purpose, () => begun);
      const progress = deps.progress;
      deps.progress = (event) => {
        begun ||= event.type === (purpose === 'run' ? 'running' : 'launch');
        progress(event);
      };
      const work = purpose === 'run' ? runJob(request, deps) : findBatch(request, deps);
      await expect.poll(waits, { timeout: 60_000 }).toHaveLength(1);
      expect(waits()[0]).toContain('that other processes hold');
      await leave();
      const report = await work;
      const notes = events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
      const again = purpose === 'run' ? 'launching it again' : 'the same size is measured again';
      expect(notes.filter((text) => text.includes(again))).toHaveLength(1);
      if ('outcome' in report) {
        expect(report).toMatchObject({ outcome: 'succeeded', config: { micro_batch: 8, accumulation: 1 } });
        return;
      }
      expect(report.max_micro_batch).toBeGreaterThanOrEqual(38);
      expect(report.probes.filter((probe) => probe.outcome !== 'fit').every((probe) => probe.micro_batch >= 40)).toBe(
        true,
      );
    },
  );

  it('ends where it is told to while it waits', async () => {
    let begun = false;
    const { request, deps, waits, leave, controller } = beside('find-batch', () => begun);
    const progress = deps.progress;
    deps.progress = (event) => {
      begun ||= event.type === 'launch';
      progress(event);
    };
    const work = findBatch(request, deps);
    await expect.poll(waits, { timeout: 60_000 }).toHaveLength(1);
    controller.abort(new Error('cancelled'));
    await expect(work).rejects.toThrow('cancelled');
    await leave();
  });
});
