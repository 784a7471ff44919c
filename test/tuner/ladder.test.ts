import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { OomtuneError } from '../../src/common/errors.js';
import { changesNumerics, explainStep, ladderFrom, rungName } from '../../src/tuner/index.js';
import { constraints, found, ledgerJob, MIB, search } from './machine.js';

const data = parse(readFileSync(new URL('../../config/ladder.yaml', import.meta.url), 'utf8'));
const names = (...args: Parameters<typeof ladderFrom>) => ladderFrom(...args).map(rungName);

describe('the ladder', () => {
  it('begins with the script as it stands and turns knobs on one by one', () => {
    expect(names(data)).toEqual(['as it stands', 'checkpointing', 'bf16', 'bf16, checkpointing']);
  });

  it('ends with activations in host memory where that can be done', () => {
    const rungs = ladderFrom(data, { can: { offload: true } });
    expect(rungs.map((rung) => rung.offload ?? false)).toEqual([false, false, false, false, true]);
    expect(names(data, { can: { offload: true }, exact: true })).toEqual([
      'as it stands',
      'checkpointing',
      'checkpointing, activations in host memory',
    ]);
  });

  it('moves activations to host memory without checkpointing where that is not allowed or not possible', () => {
    expect(names(data, { amp: 'off', checkpointing: 'off', can: { offload: true } })).toEqual([
      'as it stands',
      'activations in host memory',
    ]);
    expect(names(data, { can: { offload: true, checkpointing: false } })).toEqual([
      'as it stands',
      'bf16',
      'bf16, activations in host memory',
    ]);
    expect(names(data, { checkpointing: 'on', can: { offload: true, checkpointing: false } })).toEqual([]);
  });

  it('leaves out what changes numerics when it has to be exact', () => {
    expect(ladderFrom(data, { exact: true }).some(changesNumerics)).toBe(false);
    expect(names(data, { exact: true })).toEqual(['as it stands', 'checkpointing']);
  });

  it('is narrowed by fixed knobs', () => {
    expect(names(data, { amp: 'off' })).toEqual(['as it stands', 'checkpointing']);
    expect(names(data, { amp: 'fp16' })).toEqual(['fp16', 'fp16, checkpointing']);
    expect(names(data, { checkpointing: 'on' })).toEqual(['checkpointing', 'bf16, checkpointing']);
    expect(names(data, { amp: 'bf16', checkpointing: 'off' })).toEqual(['bf16']);
  });

  it('has no rung that the command cannot take', () => {
    expect(names(data, { can: { amp: false, checkpointing: false } })).toEqual(['as it stands']);
    expect(names(data, { amp: 'bf16', can: { amp: false } })).toEqual([]);
    expect(names(data, { amp: 'bf16', exact: true })).toEqual([]);
  });

  it('takes the half precision that the device has', () => {
    expect(names(data, { half: 'fp16' })).toContain('fp16');
  });

  it.each([
    null,
    {},
    { schema: 1, rungs: [] },
    { schema: 1, amp: 'bf16', rungs: [{ amp: 'maybe', checkpointing: true }] },
  ])('refuses a file that it cannot read: %j', (file) => {
    expect(() => ladderFrom(file)).toThrow(OomtuneError);
  });
});

describe('an explanation', () => {
  const job = ledgerJob({ resident: 100 * MIB, perSample: 2 * MIB, optimizer: 0, budget: 1000 * MIB, rate: () => 250 });
  const s = search(job, constraints({ budgetBytes: 1000 * MIB }));

  it('says for every step what was tried, why, and what came of it', () => {
    for (const probe of s.probes) {
      expect(explainStep({ type: 'probe', probe })).toMatch(/^Try micro-batch \d+ \(as it stands\).*: .+\.$/);
    }
    expect(explainStep(s.observations[0] as (typeof s.observations)[0], 1000 * MIB)).toBe(
      'Micro-batch 1 (as it stands) fits for 3 steps, peak 102 MiB of 1000 MiB, 250 samples/s.',
    );
    const failed = s.observations.find((o) => o.outcome !== 'fit');
    expect(failed && explainStep(failed)).toBe(
      'Micro-batch 451 (as it stands) ran out of memory ("out of memory at 451").',
    );
    expect(explainStep(s.last)).toContain(`the largest micro-batch that fits is ${found(s).maxMicroBatch}`);
  });
});
