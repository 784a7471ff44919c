import { describe, expect, it } from 'vitest';
import type { Observation } from '../../src/contract/measurement.js';
import type { Rung } from '../../src/contract/rung.js';
import { rungName } from '../../src/contract/rung.js';
import { Tuner } from '../../src/tuner/index.js';
import { someBlocks } from '../../src/tuner/some-blocks.js';
import { AS_IT_STANDS, constraints, type Job, MIB, search } from './machine.js';

const ALL = { ...AS_IT_STANDS, checkpointing: true, checkpointed_blocks: '' } as Rung;
/** Bytes that a sample holds in each block, and the seconds of its forward pass: the third has the most for a second. */
const BLOCKS: [number, number][] = [
  [10, 0.01],
  [10, 0.01],
  [40, 0.01],
  [10, 0.1],
];

function kept({ checkpointing, checkpointed_blocks: text }: Rung): number[] {
  const all = [...BLOCKS.keys()];
  if (!checkpointing) return all;
  if (!text) return [];
  const taken = (text.split('/')[0] as string).split(',').flatMap((range) => {
    const [first, last = first] = range.split('-').map(Number) as [number, number];
    return all.filter((at) => at >= first && at <= last);
  });
  return all.filter((at) => !taken.includes(at));
}

/** 100 MiB, and for each sample what its blocks keep, and one MiB. */
const job = (budgetMib: number): Job => ({
  run({ rung, micro_batch: size }) {
    const peak = 100 + size * (1 + kept(rung).reduce((sum, at) => sum + (BLOCKS[at]?.[0] ?? 0), 0));
    if (peak > budgetMib) return { outcome: 'device_oom' };
    const seconds = BLOCKS.reduce((sum, [, each], at) => sum + each * (kept(rung).includes(at) ? 3 : 4), 0);
    const blocks = rung.checkpointing && !rung.checkpointed_blocks ? BLOCKS : null;
    return {
      outcome: 'fit',
      step_s: size * seconds,
      peaks: { total_bytes: peak * MIB, forward_backward_bytes: peak * MIB, optimizer_bytes: 90 * MIB },
      blocks: blocks?.map(([bytes, each]) => [size * bytes * MIB, size * each]) ?? null,
    };
  },
});

const found = (budgetMib: number, patch: Parameters<typeof constraints>[0]) =>
  search(
    job(budgetMib),
    constraints({
      rungs: [AS_IT_STANDS, ALL],
      budgetBytes: budgetMib * MIB,
      headroomPct: 0,
      someBlocks: true,
      ...patch,
    }),
  );

describe('checkpointing of some blocks', () => {
  it('recomputes those with the most bytes for a second, and no more than the wanted size needs', () => {
    const { last, probes } = found(450, { minBatch: 8, maxBatch: 8 });
    expect(last).toMatchObject({ type: 'found', answer: { max_micro_batch: 8, config: { micro_batch: 8 } } });
    // 100 + 8 x (1 + 70) do not fit, and 100 + 8 x (1 + 30) do.
    expect(last.type === 'found' && last.answer.config).toMatchObject({
      checkpointing: true,
      checkpointed_blocks: '2/4',
    });
    expect(probes.map(({ rung }) => rungName(rung))).toEqual([
      'as it stands',
      'checkpointing',
      'checkpointing of 1/4 blocks',
      ...(probes.length > 3 ? ['checkpointing of 1/4 blocks'] : []),
    ]);
  });

  it('takes more of them where the fewest do not fit', () => {
    const [bytes] = [MIB];
    const at = (blocks: string, outcome: Observation['outcome'], total: number | null): Observation =>
      ({
        rung: { ...ALL, checkpointed_blocks: blocks },
        micro_batch: 8,
        outcome,
        peaks: { total_bytes: total, forward_backward_bytes: null, optimizer_bytes: null },
        blocks: blocks ? null : [1, 1, 1, 1].map(() => [10 * bytes, 1]),
      }) as unknown as Observation;
    const sets = (...observations: Observation[]) =>
      someBlocks({ rung: ALL, size: 8, observations, limitBytes: 130 * bytes }).map((rung) => rung.checkpointed_blocks);
    const whole = at('', 'fit', 100 * bytes);
    expect(sets(whole)).toEqual(['0/4']);
    expect(sets(whole, at('0/4', 'device_oom', null))).toEqual(['0/4', '0-1/4']);
    expect(sets(whole, at('0/4', 'device_oom', null), at('0-1/4', 'fit', 125 * bytes))).toEqual(['0/4', '0-1/4']);
    expect(sets(whole, at('0-2/4', 'fit', 100 * bytes))).toEqual(['0/4', '0-2/4']);
    // What fits, and takes more than was predicted.
    expect(sets(whole, at('0/4', 'fit', 131 * bytes))).toEqual(['0-1/4']);
    expect(sets({ ...whole, blocks: null } as Observation)).toEqual([]);
    expect(sets(at('', 'fit', 129 * bytes))).toEqual([]);
  });

  it('leaves a search for the largest size as it was', () => {
    const { last } = found(450, { minBatch: 8 });
    expect(last).toEqual(found(450, { minBatch: 8, someBlocks: false }).last);
    expect(last.type === 'found' && last.answer.max_micro_batch).toBeGreaterThan(300);
  });

  it('keeps the micro-batch that a job can have with all of them', () => {
    const { last, launches } = found(450, { goal: 'keep', ownBatch: 64, effectiveBatch: 64, accumulation: 'off' });
    expect(last.type === 'found' && last.answer.config).toMatchObject({ micro_batch: 64, checkpointing: true });
    expect(last.type === 'found' && last.answer.config.checkpointed_blocks).toBe('');
    const roomy = found(1000, { goal: 'keep', ownBatch: 16, effectiveBatch: 16, accumulation: 'off' });
    expect(roomy.last.type === 'found' && roomy.last.answer.config.checkpointed_blocks).toBe('2/4');
    expect(roomy.launches).toBeLessThanOrEqual(launches + 1);
  });

  it('has a part in the comparison of speeds, in the same launches', () => {
    const patch = { objective: 'throughput' as const, effectiveBatch: 16, minBatch: 16, accumulation: 'off' as const };
    const { last, launches, observations } = found(1000, patch);
    const without = found(1000, { ...patch, someBlocks: false });
    expect(last.type === 'found' && last.answer.config.checkpointed_blocks).toBe('2/4');
    expect(launches).toBeLessThanOrEqual(without.launches);
    // A journal that is told to another tuner brings it to the same place.
    const again = new Tuner(
      constraints({ rungs: [AS_IT_STANDS, ALL], budgetBytes: 1000 * MIB, headroomPct: 0, someBlocks: true, ...patch }),
    );
    for (const one of observations) again.tell(one);
    expect(again.next()).toEqual(last);
  });
});
