import { describe, expect, it } from 'vitest';
import type { Rung } from '../../src/contract/rung.js';
import { AS_IT_STANDS, constraints, found, ledgerJob, MIB, search } from './machine.js';

const BUDGET = 1001 * MIB;
const CHECKPOINTING: Rung = { amp: 'off', checkpointing: true };

/** 100 MiB of model, 2 MiB a sample: 450 fit. */
function plainJob(patch: Partial<Parameters<typeof ledgerJob>[0]> = {}) {
  return ledgerJob({ resident: 100 * MIB, perSample: 2 * MIB, optimizer: 50 * MIB, budget: BUDGET, ...patch });
}

const base = { budgetBytes: BUDGET };

describe('the effective batch', () => {
  const job = plainJob({ gradients: 40 * MIB });

  it('is made up exactly, and measured with gradients resident', () => {
    const s = search(job, constraints({ ...base, effectiveBatch: 1024 }));
    const { config, max_micro_batch: maxMicroBatch } = found(s);
    expect(config).toMatchObject({ micro_batch: 256, accumulation: 4, effective_batch: 1024 });
    expect(maxMicroBatch).toBe(430);
    expect(s.probes.every((p) => p.accumulation === 2)).toBe(true);
  });

  it('counts every device', () => {
    const s = search(job, constraints({ ...base, effectiveBatch: 1024, worldSize: 4 }));
    expect(found(s).config).toMatchObject({ micro_batch: 256, accumulation: 1, world_size: 4, effective_batch: 1024 });
  });

  it('takes the nearest when the devices cannot share it, and says why', () => {
    const { config, notes } = found(search(job, constraints({ ...base, effectiveBatch: 100, worldSize: 3 })));
    expect(config.effective_batch).toBe(99);
    expect(notes.join(' ')).toContain('99 instead of 100: 100 cannot be shared evenly by 3 devices');
  });

  it('takes the nearest when no allowed micro-batch divides it, and says why', () => {
    const { config, notes } = found(search(job, constraints({ ...base, effectiveBatch: 1021, minBatch: 2 })));
    expect(config.effective_batch).toBe(1020);
    expect(notes.join(' ')).toContain('no micro-batch in the allowed range divides 1021');
  });

  it('keeps a prime exactly, and names a number that would be faster', () => {
    const { config, notes } = found(search(job, constraints({ ...base, effectiveBatch: 1021 })));
    expect(config).toMatchObject({ micro_batch: 1, accumulation: 1021 });
    expect(notes.join(' ')).toContain('an effective batch of 1020');
  });

  it('names the bounds that leave nothing to try', () => {
    const why = (changes: Parameters<typeof constraints>[0]) => search(job, constraints({ ...base, ...changes })).last;
    expect(why({ effectiveBatch: null, minBatch: 3000, maxBatch: 2048 })).toMatchObject({
      type: 'exhausted',
      why: expect.stringMatching(/^the micro-batch may be from 3000 to 2048/),
    });
    expect(why({ effectiveBatch: 64, maxBatch: 8, accumulation: 'off' })).toMatchObject({
      type: 'exhausted',
      why: expect.stringMatching(/^without accumulation the micro-batch would have to be 64, but .* from 1 to 8 /),
    });
  });

  it('fits at once or not at all without accumulation', () => {
    const off = { ...base, accumulation: 'off' as const };
    expect(found(search(job, constraints({ ...off, effectiveBatch: 400 }))).config).toMatchObject({
      micro_batch: 400,
      accumulation: 1,
    });
    const rungs = [AS_IT_STANDS, CHECKPOINTING];
    const factor = (rung: Rung) => (rung.checkpointing ? 0.25 : 1);
    const s = search(plainJob({ factor }), constraints({ ...off, rungs, effectiveBatch: 600 }));
    expect(found(s).config).toMatchObject({ micro_batch: 600, accumulation: 1, checkpointing: true });
    const none = search(job, constraints({ ...off, effectiveBatch: 600 }));
    expect(none.last.type).toBe('exhausted');
    const outside = search(job, constraints({ ...off, effectiveBatch: 600, maxBatch: 500 }));
    expect(outside.last).toMatchObject({ type: 'exhausted' });
    expect(outside.probes).toEqual([]);
  });

  it('is tried at once where the gradients of accumulation would not fit beside it', () => {
    const resident = 160 * MIB;
    const s = search(
      plainJob({ resident, gradients: 40 * MIB }),
      constraints({ ...base, headroomPct: 0, effectiveBatch: 418 }),
    );
    expect(found(s).config).toMatchObject({ micro_batch: 418, accumulation: 1 });
  });
});

describe('keeping the effective batch', () => {
  const keep = { ...base, goal: 'keep' as const };
  const job = plainJob({ gradients: 40 * MIB });

  it('runs a job that fits as it stands exactly as it stands, after one probe', () => {
    const s = search(job, constraints({ ...keep, effectiveBatch: 64, ownBatch: 64 }));
    expect(s.probes.map((p) => [p.micro_batch, p.fresh, p.purpose])).toEqual([[64, true, 'own']]);
    expect(found(s)).toMatchObject({ max_micro_batch: 64, config: { micro_batch: 64, accumulation: 1, amp: 'off' } });
  });

  it('does not ask for headroom then', () => {
    const s = search(job, constraints({ ...keep, effectiveBatch: 450, ownBatch: 450 }));
    expect(found(s).config.micro_batch).toBe(450);
  });

  it("keeps the loop's own accumulation", () => {
    const s = search(job, constraints({ ...keep, effectiveBatch: 256, ownBatch: 64 }));
    expect(s.probes.map((p) => p.accumulation)).toEqual([2]);
    expect(found(s).config).toMatchObject({ micro_batch: 64, accumulation: 4 });
  });

  it('halves a batch that does not fit and accumulates', () => {
    const s = search(job, constraints({ ...keep, effectiveBatch: 512, ownBatch: 512 }));
    expect(s.probes.map((p) => p.micro_batch)).toEqual([512, 1, 4, 16, 64, 128, 256]);
    expect(found(s).config).toMatchObject({ micro_batch: 256, accumulation: 2, effective_batch: 512 });
  });

  it('finds the largest divisor when half does not fit either', () => {
    const s = search(job, constraints({ ...keep, effectiveBatch: 3000, ownBatch: 3000 }));
    expect(found(s).config).toMatchObject({ micro_batch: 375, accumulation: 8, effective_batch: 3000 });
    expect(s.launches).toBeLessThanOrEqual(4);
  });

  it('works without an effective batch of its own', () => {
    const s = search(job, constraints({ ...keep, ownBatch: 512, worldSize: 2 }));
    expect(found(s).config).toMatchObject({ micro_batch: 256, accumulation: 2, world_size: 2, effective_batch: 1024 });
  });

  it('does not try a size that is known to be bad', () => {
    const s = search(job, constraints({ ...keep, effectiveBatch: 64, ownBatch: 64, knownBad: 64 }));
    expect(s.probes.every((p) => p.micro_batch < 64)).toBe(true);
    expect(found(s).config).toMatchObject({ micro_batch: 32, accumulation: 2 });
  });
});
