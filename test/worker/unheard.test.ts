import { describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { unheardByXla } from '../../src/worker/search/unheard.js';
import { pythonWithTorch, workbench } from './harness.js';

const command = [pythonWithTorch(), 'unheard.py', '--batch'];

describe('a program that does not notice that memory was refused to it', () => {
  it('is not taken to fit where it ended well', async () => {
    const bench = workbench('find-batch', [...command, '{micro_batch}'], { budget: '80MiB' });
    const report = await findBatch(bench.request, bench.deps);
    expect(report.status, JSON.stringify(report.failure)).toBe('found');
    // One MiB a sample beside the interpreter, and 16 more above 64: each size takes what it says, or is refused it.
    expect(report.max_micro_batch).toBeLessThanOrEqual(64);
    const refused = report.probes.filter(({ outcome }) => outcome === 'device_oom');
    expect(refused.length).toBeGreaterThan(0);
    expect(refused[0]?.evidence).toMatch(/^Memory was refused 3 times, the last time of .*, and the program ended/);
    const more = Math.ceil((report.max_micro_batch as number) * 1.02) + 1;
    expect((await alone(more)).refused).toBeGreaterThan(0);
    expect((await alone(report.max_micro_batch as number)).refused).toBe(0);
  });

  it('is exhausted where not even the smallest size fits', async () => {
    const bench = workbench('find-batch', [...command, '{micro_batch}'], { budget: '80MiB', minBatch: 200 });
    const report = await findBatch(bench.request, bench.deps);
    expect(report).toMatchObject({ status: 'exhausted', failure: { class: 'device_oom' } });
  });

  it('is told so after its run', async () => {
    const { notes } = await alone(200);
    expect(notes.join(' ')).toContain('ended with exit code 0 all the same: what it computed with it is missing');
    expect((await alone(1)).notes.join(' ')).not.toContain('refused');
  });
});

describe('a script that halves its batch by itself when memory runs out', () => {
  it('is not recorded as one that fits at the batch that it began with', async () => {
    const bench = workbench('run', [pythonWithTorch(), 'halves.py'], { budget: '40MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', launches: 1, config: null });
    expect(report.refused).toBeGreaterThan(0);
    expect(bench.recorded.size).toBe(0);
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes.join(' ')).toContain(
      'the script, or a library in it, got over that: nothing is recorded of its batch',
    );
  });
});

describe("XLA's word in a log", () => {
  const at = '2026-11-23 12:00:00.000000: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] ';
  const says = 'Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB ';

  it('is a failure where the pool gave up', () => {
    const log = `step 1\n${at}${says}(rounded to 17179869184)requested by op \nCurrent allocation summary follows.\n`;
    expect(unheardByXla(log)).toMatch(/^XLA ran out of memory trying to allocate 16.00GiB, and the program ended/);
  });

  it('is none where it only tries something smaller', () => {
    const soft =
      'with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains';
    expect(unheardByXla(`${at}${says}${soft} if more memory were available.\n`)).toBeNull();
    expect(unheardByXla('step 1\nran out of memory trying to be funny\n')).toBeNull();
  });
});

async function alone(batch: number) {
  const bench = workbench('run', [...command, String(batch)], { budget: '80MiB', tune: false });
  const { outcome, refused } = await runJob(bench.request, bench.deps);
  expect(outcome).toBe('succeeded');
  const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
  return { refused, notes };
}
