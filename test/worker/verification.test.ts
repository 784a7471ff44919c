import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { expectedPeak } from '../../src/worker/run/verification.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import type { Progress } from '../../src/worker/types.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const NAMED = { name: 'sweep', budget: '60MiB' };
const sweep = (...flags: string[]) => [python, 'sweep.py', ...flags];

const probes = (events: Progress[]) => events.filter((event) => event.type === 'probe').map((event) => event.record);
const notes = (events: Progress[]) => events.flatMap((event) => (event.type === 'note' ? [event.text] : [])).join('\n');

function printed(bench: ReturnType<typeof workbench>): string {
  const patch = bench.persisted.findLast((one) => 'launches' in one) as { launches: { dir: string }[] };
  return readFileSync(join(patch.launches.at(-1)?.dir as string, 'log'), 'utf8');
}

describe('a second run of the same name with other flags', () => {
  const recorded = workbench('find-batch', sweep(), NAMED).recorded;

  /** Another call with the same store. */
  async function run(flags: string[], options: object = {}) {
    const bench = workbench('run', sweep(...flags), { ...NAMED, ...options });
    for (const [key, value] of recorded) bench.recorded.set(key, value);
    const report = await runJob(bench.request, bench.deps);
    for (const [key, value] of bench.recorded) recorded.set(key, value);
    return { report, seen: probes(bench.events), said: notes(bench.events), text: printed(bench) };
  }

  const only = () => {
    const [one, ...more] = recorded.values();
    expect(more).toEqual([]);
    return one as NonNullable<typeof one>;
  };

  beforeAll(async () => {
    const bench = workbench('find-batch', sweep(), NAMED);
    expect((await findBatch(bench.request, bench.deps)).status).toBe('found');
    for (const [key, value] of bench.recorded) recorded.set(key, value);
    expect(only().micro_batch).toBeGreaterThan(64);
  });

  it('is run as it stands where the first would be, and that shows whether the record holds for it', async () => {
    const before = only();
    const { report, seen, said, text } = await run(['--lr', '0.5', '--out', 'elsewhere']);
    expect(report).toMatchObject({ outcome: 'succeeded', config: { micro_batch: 64, accumulation: 1 } });
    expect(text).toBe('lr 0.5 rounds 8\n');
    expect([seen, report.launches]).toEqual([[], 1]);
    expect(said).toContain(
      'The run shows that what was recorded for other flags of this name holds for these, too (micro-batch 64',
    );
    const { verified_at: _, commands: __, ...kept } = only();
    expect(before).toMatchObject(kept);
    for (const flags of [['--lr', '0.5', '--out', 'elsewhere'], []]) expect((await run(flags)).seen).toEqual([]);
  });

  it('says why it runs smaller than what was recorded', async () => {
    const { said } = await run([]);
    expect(said).toContain('asks for batches of 64 by itself');
    expect(said).toContain(`--effective-batch ${only().micro_batch}`);
  });

  it('takes the batch that the flags ask for, not the one that was recorded', async () => {
    const { report, seen, text } = await run(['--batch-size', '32']);
    expect(report.config).toMatchObject({ micro_batch: 32, accumulation: 1, effective_batch: 32 });
    expect(text).toBe('lr 0.01 rounds 16\n');
    expect([seen, report.launches]).toEqual([[], 1]);
  });

  it('splits an effective batch that is too large by what was recorded, which one probe verifies', async () => {
    const { report, seen } = await run(['--batch-size', '512', '--lr', '2']);
    expect(report).toMatchObject({ outcome: 'succeeded', config: { effective_batch: 512 } });
    expect(report.config?.accumulation).toBeGreaterThan(1);
    expect(seen).toMatchObject([{ micro_batch: 512, outcome: 'device_oom' }, { outcome: 'fit' }]);
    expect(report.launches).toBe(2);
  });

  it('leaves the record as it is where they change the memory', async () => {
    const before = only();
    const { report, said } = await run(['--hidden', '4096']);
    expect(report).toMatchObject({ outcome: 'succeeded', launches: 1, config: { micro_batch: 64 } });
    expect(said).not.toContain('holds for these');
    expect(only()).toEqual(before);
  });

  it('searches anew where they change so much that its batch does not fit', async () => {
    const { report, said } = await run(['--hidden', '24576', '--batch-size', '256']);
    expect(report).toMatchObject({ outcome: 'succeeded', config: { effective_batch: 256 } });
    expect(said).toContain('does not hold for these: it is searched anew');
    expect(only().commands).toHaveLength(1);
  });
});

it('the peak that is expected lies on the line between the sizes that were measured on the rung', () => {
  const rung = { amp: 'off', checkpointing: false } as const;
  const probe = { launch: 1, ...rung, steps: 3, outcome: 'fit', step_s: 1, evidence: null } as const;
  const measured = [
    { ...probe, micro_batch: 10, peak_bytes: 100 },
    { ...probe, micro_batch: 30, peak_bytes: 300 },
    { ...probe, micro_batch: 20, peak_bytes: 900, amp: 'bf16' as const },
    { ...probe, micro_batch: 40, peak_bytes: 1000, outcome: 'device_oom' as const },
  ];
  const at = (microBatch: number) => expectedPeak(measured, { rung, micro_batch: microBatch });
  expect([at(10), at(20), at(30), at(5), at(35)]).toEqual([100, 200, 300, null, null]);
});
