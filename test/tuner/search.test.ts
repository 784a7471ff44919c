import { describe, expect, it } from 'vitest';
import { Tuner } from '../../src/tuner/index.js';
import type { Rung } from '../../src/tuner/types.js';
import { AS_IT_STANDS, constraints, found, type Job, ledgerJob, MIB, search } from './machine.js';

const BUDGET = 1000 * MIB;
const CHECKPOINTING: Rung = { amp: 'off', checkpointing: true };
const BF16: Rung = { amp: 'bf16', checkpointing: false };
const BOTH: Rung = { amp: 'bf16', checkpointing: true };

/** 100 MiB of model, 2 MiB a sample: 450 fit. */
function plainJob(patch: Partial<Parameters<typeof ledgerJob>[0]> = {}) {
  return ledgerJob({ resident: 100 * MIB, perSample: 2 * MIB, optimizer: 50 * MIB, budget: BUDGET, ...patch });
}

const base = { budgetBytes: BUDGET };

describe('the climb', () => {
  it('rises by strides that are predicted to fit, proves the successor, and verifies afresh', () => {
    const s = search(plainJob(), constraints(base));
    expect(s.probes.map((p) => [p.microBatch, p.fresh])).toEqual([
      [1, false],
      [4, false],
      [112, false],
      [225, false],
      [443, false],
      [450, false],
      [451, false],
      [450, true],
      [435, false],
    ]);
    expect(found(s)).toMatchObject({ maxMicroBatch: 450, knownBad: 451, config: { micro_batch: 435 } });
  });

  it('leaves an optimizer-dominated floor quickly', () => {
    const s = search(plainJob({ optimizer: 700 * MIB }), constraints(base));
    expect(found(s).maxMicroBatch).toBe(450);
    expect(s.probes.length).toBeLessThanOrEqual(10);
  });

  it('doubles and halves where nothing is measured', () => {
    const s = search(plainJob({ telemetry: false }), constraints(base));
    const { maxMicroBatch, peakBytes } = found(s);
    expect(s.probes.slice(0, 4).map((p) => p.microBatch)).toEqual([1, 2, 4, 8]);
    expect(maxMicroBatch).toBeGreaterThanOrEqual(441);
    expect(maxMicroBatch).toBeLessThanOrEqual(450);
    expect(peakBytes).toBeNull();
  });

  it('starts at the smallest size that is allowed and stops at the largest', () => {
    const s = search(plainJob(), constraints({ ...base, minBatch: 16, maxBatch: 100 }));
    expect(s.probes[0]?.microBatch).toBe(16);
    expect(found(s)).toMatchObject({ maxMicroBatch: 100, knownBad: null, config: { micro_batch: 100 } });
    expect(s.oomLaunches).toBe(0);
  });

  it('never reaches a size that an earlier run could not take', () => {
    const s = search(plainJob(), constraints({ ...base, knownBad: 300 }));
    expect(Math.max(...s.probes.map((p) => p.microBatch))).toBeLessThan(300);
    expect(found(s).maxMicroBatch).toBeGreaterThanOrEqual(294);
    expect(found(s).knownBad).toBe(300);
  });

  it('believes only fresh processes when one of them cannot take what a warm one took', () => {
    const job: Job = {
      run: (probe, warm) =>
        probe.microBatch > (warm ? 400 : 390) ? { outcome: 'device_oom' } : plainJob().run(probe, warm),
    };
    const { maxMicroBatch } = found(search(job, constraints(base)));
    expect(maxMicroBatch).toBeLessThanOrEqual(390);
    expect(maxMicroBatch).toBeGreaterThanOrEqual(383);
  });
});

describe('the ladder', () => {
  const rungs = [AS_IT_STANDS, CHECKPOINTING, BF16, BOTH];
  const factor = (rung: Rung) => (rung.checkpointing ? 0.25 : 1) * (rung.amp === 'off' ? 1 : 0.5);

  it('stays on the first rung when anything fits there', () => {
    const s = search(plainJob({ factor }), constraints({ ...base, rungs }));
    expect(found(s).config).toMatchObject({ amp: 'off', checkpointing: false });
    expect(s.probes.every((p) => p.rung === rungs[0])).toBe(true);
  });

  it('climbs to the first rung on which the smallest size fits, and finds the largest there', () => {
    const job = plainJob({ perSample: 2000 * MIB, factor });
    const s = search(job, constraints({ ...base, rungs }));
    expect(found(s)).toMatchObject({ maxMicroBatch: 1, config: { amp: 'off', checkpointing: true } });
    const two = search(job, constraints({ ...base, rungs, minBatch: 2 }));
    expect(found(two)).toMatchObject({ maxMicroBatch: 3, config: { amp: 'bf16', checkpointing: true } });
    expect(found(two).notes.join(' ')).toContain('changes the numerics');
  });

  it('is exhausted with the evidence of the smallest size when nothing fits, even while loading', () => {
    const job: Job = { run: () => ({ outcome: 'device_oom', phase: 'load', evidence: 'CUDA out of memory.' }) };
    const s = search(job, constraints({ ...base, rungs }));
    expect(s.last).toMatchObject({ type: 'exhausted', evidence: 'CUDA out of memory.' });
    expect(s.last.type === 'exhausted' && s.last.why).toContain('while the job was still loading');
    expect(s.probes.map((p) => p.microBatch)).toEqual([1, 1, 1, 1]);
  });

  it('gives the fastest rung with objective throughput, at the same effective batch', () => {
    const speed = (rung: Rung) => (rung.checkpointing ? 0.7 : 1) * (rung.amp === 'off' ? 100 : 180);
    const slow = plainJob({ factor, gradients: 20 * MIB });
    const job: Job = {
      run: (probe, warm) => {
        const result = slow.run(probe, warm);
        const rate = (speed(probe.rung) * probe.microBatch) / (probe.microBatch + 8);
        return { ...result, stepSeconds: (probe.microBatch * probe.accumulation) / rate };
      },
    };
    const s = search(job, constraints({ ...base, rungs, objective: 'throughput', effectiveBatch: 512 }));
    const { config, samplesPerSecond, maxMicroBatch } = found(s);
    expect(config).toMatchObject({ amp: 'bf16', checkpointing: false, effective_batch: 512 });
    expect(samplesPerSecond).toBeGreaterThan(0.95 * 180);
    expect(slow.peak(maxMicroBatch, 1, BF16)).toBeLessThanOrEqual(BUDGET);
    expect(s.oomLaunches).toBeLessThanOrEqual(1);
    expect(s.launches).toBeLessThanOrEqual(2);
    expect(new Set(s.probes.map((p) => `${p.rung.amp} ${p.rung.checkpointing}`)).size).toBe(4);
  });
});

describe('the objective throughput', () => {
  it('stays with the rung that was fastest when all had been measured', () => {
    const rungs = [AS_IT_STANDS, CHECKPOINTING];
    let seen = 0;
    const job: Job = {
      run: (probe, warm) => {
        seen += 1;
        // The first rung is fast at first and slow whenever it is looked at again.
        const rate = probe.rung.checkpointing ? 80 : seen < 12 ? 100 : 60;
        const factor = (rung: Rung) => (rung.checkpointing ? 0.25 : 1);
        return { ...plainJob({ factor }).run(probe, warm), stepSeconds: probe.microBatch / rate };
      },
    };
    const s = search(job, constraints({ ...base, rungs, objective: 'throughput' }));
    const switches = s.probes.filter((p, index) => index > 0 && p.rung !== s.probes[index - 1]?.rung).length;
    expect(switches).toBe(2);
    expect(found(s).config.checkpointing).toBe(false);
  });
});

describe('the recommendation', () => {
  it('leaves the headroom free', () => {
    for (const headroomPct of [0, 3, 10, 25]) {
      const answer = found(search(plainJob(), constraints({ ...base, headroomPct })));
      expect(answer.maxMicroBatch).toBe(450);
      expect(answer.headroomPct).toBeGreaterThanOrEqual(headroomPct);
      expect(answer.headroomPct).toBeLessThan(headroomPct + 1);
    }
  });

  /** Samples/s of a U-Net in bf16 by part of the largest size: above 0.92 cuDNN takes an algorithm half as fast. */
  it('avoids the last per cents where they are slow', () => {
    const rate = (size: number) => (size > 0.92 * 450 ? 200 : 454 - 20 * (1 - size / 450));
    const { config, maxMicroBatch, samplesPerSecond, notes } = found(search(plainJob({ rate }), constraints(base)));
    expect(maxMicroBatch).toBe(450);
    expect(config.micro_batch).toBeLessThan(0.92 * 450);
    expect(samplesPerSecond).toBeGreaterThan(0.97 * 452);
    expect(notes.join(' ')).toContain('run slower');
  });

  it.each([
    ['resnet50', [2455, 2506, 2521, 2518, 2518, 2310]],
    ['convnext', [2918, 3047, 3135, 3151, 3159, 3160]],
    ['efficientnet', [1975, 2011, 2021, 2013, 2016, 2020]],
    ['unet', [445, 452, 454, 200, 200, 200]],
    ['lstm', [9546, 10484, 10646, 10699, 10699, 10699]],
  ])('reaches 97 %% of the best speed of %s', (_, rates) => {
    const parts = [0.5, 0.8, 0.9, 0.95, 0.98, 1];
    const rate = (size: number) => {
      const at = parts.findIndex((part) => size <= part * 450);
      return at <= 0 ? (rates[0] as number) * Math.min(1, size / 225) ** 0.15 : (rates[at] as number);
    };
    const { samplesPerSecond } = found(search(plainJob({ rate }), constraints(base)));
    expect(samplesPerSecond).toBeGreaterThanOrEqual(0.97 * Math.max(...rates));
  });

  it('measures the largest good size again where speeds vary for no reason', () => {
    let slow = 0;
    const rate = (size: number) => {
      if (size < 435) return 100;
      slow += 1;
      // The verification and the first look at the size that leaves the headroom fall into a busy moment.
      return slow === 3 || slow === 4 ? 60 : 100;
    };
    const s = search(plainJob({ rate }), constraints(base));
    expect(s.probes.filter((p) => p.microBatch === 435).length).toBe(2);
    expect(found(s).config.micro_batch).toBe(435);
    expect(found(s).samplesPerSecond).toBeCloseTo(100);
  });

  it('never recommends a size at which the allocator retries', () => {
    const job: Job = {
      run: (probe, warm) => ({ ...plainJob().run(probe, warm), allocRetries: probe.microBatch > 400 ? 3 : 0 }),
    };
    const answer = found(search(job, constraints(base)));
    expect(answer.maxMicroBatch).toBe(450);
    expect(answer.config.micro_batch).toBeLessThanOrEqual(400);
    expect(answer.notes.join(' ')).toContain('retry');
  });

  it('says so when the smallest size leaves less than the headroom', () => {
    const answer = found(search(plainJob({ perSample: 890 * MIB }), constraints(base)));
    expect(answer).toMatchObject({ maxMicroBatch: 1, config: { micro_batch: 1 } });
    expect(answer.notes.join(' ')).toContain('less than 3 %');
  });
});

describe('the effective batch', () => {
  const job = plainJob({ gradients: 40 * MIB });

  it('is made up exactly, and measured with gradients resident', () => {
    const s = search(job, constraints({ ...base, effectiveBatch: 1024 }));
    const { config, maxMicroBatch } = found(s);
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
    expect(s.probes.map((p) => [p.microBatch, p.fresh, p.purpose])).toEqual([[64, true, 'own']]);
    expect(found(s)).toMatchObject({ maxMicroBatch: 64, config: { micro_batch: 64, accumulation: 1, amp: 'off' } });
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
    expect(s.probes.map((p) => p.microBatch)).toEqual([512, 256]);
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
    expect(s.probes.every((p) => p.microBatch < 64)).toBe(true);
    expect(found(s).config).toMatchObject({ micro_batch: 32, accumulation: 2 });
  });
});

describe('failures that are not memory', () => {
  it.each([
    'user_error',
    'timeout',
    'killed',
    'host_oom',
    'shm',
    'network',
    'device_fault',
    'disk_full',
    'cancelled',
  ] as const)('%s ends the search at once and is never tried smaller', (outcome) => {
    const job: Job = {
      run: (probe, warm) => (probe.microBatch > 100 ? { outcome, evidence: 'the line' } : plainJob().run(probe, warm)),
    };
    const s = search(job, constraints(base));
    expect(s.last).toEqual({ type: 'failed', failure: outcome, evidence: 'the line' });
    expect(s.probes.at(-1)?.microBatch).toBeGreaterThan(100);
  });

  it('an ambiguous failure is memory when a smaller size fits', () => {
    const job: Job = {
      run: (probe, warm) => ({ ...plainJob().run(probe, warm), ambiguous: probe.microBatch > 450 }),
    };
    expect(found(search(job, constraints(base))).maxMicroBatch).toBe(450);
  });

  it('an ambiguous failure is tried much smaller before more is asked of the job', () => {
    const job: Job = { run: (probe) => ({ outcome: 'device_oom', ambiguous: probe.microBatch > 4 }) };
    const s = search(job, constraints({ ...base, goal: 'keep', ownBatch: 64, effectiveBatch: 64 }));
    expect(s.probes.slice(0, 2).map((p) => p.microBatch)).toEqual([64, 32]);
  });

  it('an ambiguous failure of the smallest size is no memory failure', () => {
    const job: Job = {
      run: () => ({ outcome: 'device_oom', ambiguous: true, evidence: 'CUBLAS_STATUS_ALLOC_FAILED' }),
    };
    const s = search(job, constraints({ ...base, rungs: [AS_IT_STANDS, CHECKPOINTING] }));
    expect(s.last).toEqual({ type: 'failed', failure: 'device_oom', evidence: 'CUBLAS_STATUS_ALLOC_FAILED' });
    expect(s.probes.length).toBe(1);
  });
});

describe('the number of launches', () => {
  it('ends the search with what a fresh process has shown', () => {
    const s = search(plainJob(), constraints({ ...base, maxLaunches: 3 }), true);
    expect(s.launches).toBe(3);
    const { maxMicroBatch, notes } = found(s);
    expect(s.probes.map((p) => p.microBatch)).toContain(maxMicroBatch);
    expect(notes.join(' ')).toContain('only 3 launches');
  });

  it('names the limit when nothing was verified', () => {
    const job = plainJob({ perSample: 2000 * MIB });
    const s = search(job, constraints({ ...base, rungs: [AS_IT_STANDS, CHECKPOINTING], maxLaunches: 1 }));
    expect(s.last).toMatchObject({ type: 'exhausted', evidence: 'out of memory at 1' });
    expect(s.last.type === 'exhausted' && s.last.why).toContain('only 1 launches are allowed');
  });

  it('keeps the last launch for the verification', () => {
    const s = search(plainJob(), constraints({ ...base, maxLaunches: 2 }));
    expect(found(s).maxMicroBatch).toBe(450);
  });
});

describe('asking and telling', () => {
  it('repeats an action until something is told', () => {
    const tuner = new Tuner(constraints(base));
    expect(tuner.next()).toBe(tuner.next());
  });

  it('has nothing to try without a rung', () => {
    expect(new Tuner(constraints({ ...base, rungs: [] })).next()).toMatchObject({ type: 'exhausted' });
  });
});
