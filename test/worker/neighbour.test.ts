import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run-job.js';
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
