import { describe, expect, it } from 'vitest';
import type { Probe } from '../../src/contract/measurement.js';
import type { Rung } from '../../src/contract/rung.js';
import { Tuner } from '../../src/tuner/index.js';
import { closingSize } from '../../src/tuner/sizes.js';
import { AS_IT_STANDS, constraints, found, type Job, ledgerJob, MIB, search } from './machine.js';

const BUDGET = 1001 * MIB;
const CHECKPOINTING: Rung = { amp: 'off', checkpointing: true };
const BF16: Rung = { amp: 'bf16', checkpointing: false };
const BOTH: Rung = { amp: 'bf16', checkpointing: true };

/** 100 MiB of model, 2 MiB a sample: 450 fit. */
function plainJob(patch: Partial<Parameters<typeof ledgerJob>[0]> = {}) {
  return ledgerJob({ resident: 100 * MIB, perSample: 2 * MIB, optimizer: 50 * MIB, budget: BUDGET, ...patch });
}

const base = { budgetBytes: BUDGET };

describe('the climb', () => {
  it('rises by strides that are predicted to fit, and tries where the line of the peaks ends in a fresh process at once', () => {
    const s = search(plainJob(), constraints(base));
    expect(s.probes.map((p) => [p.micro_batch, p.fresh])).toEqual([
      [1, false],
      [4, false],
      [150, false],
      [330, false],
      [450, true],
      [435, false],
    ]);
    expect(found(s)).toMatchObject({ max_micro_batch: 450, known_bad_micro_batch: null, config: { micro_batch: 435 } });
    expect(s.oomLaunches).toBe(0);
  });

  it('leaves an optimizer-dominated floor quickly', () => {
    const s = search(plainJob({ optimizer: 700 * MIB }), constraints(base));
    expect(found(s).max_micro_batch).toBe(450);
    expect(s.probes.length).toBeLessThanOrEqual(10);
  });

  it('doubles and halves where nothing is measured', () => {
    const s = search(plainJob({ telemetry: false }), constraints(base));
    const { max_micro_batch: maxMicroBatch, peak_bytes: peakBytes } = found(s);
    expect(s.probes.slice(0, 4).map((p) => p.micro_batch)).toEqual([1, 2, 4, 8]);
    expect(maxMicroBatch).toBeGreaterThanOrEqual(441);
    expect(maxMicroBatch).toBeLessThanOrEqual(450);
    expect(peakBytes).toBeNull();
  });

  it('starts at the smallest size that is allowed and stops at the largest', () => {
    const s = search(plainJob(), constraints({ ...base, minBatch: 16, maxBatch: 100 }));
    expect(s.probes[0]?.micro_batch).toBe(16);
    expect(found(s)).toMatchObject({ max_micro_batch: 100, known_bad_micro_batch: null, config: { micro_batch: 100 } });
    expect(s.oomLaunches).toBe(0);
  });

  it('never reaches a size that an earlier run could not take', () => {
    const s = search(plainJob(), constraints({ ...base, knownBad: 300 }));
    expect(Math.max(...s.probes.map((p) => p.micro_batch))).toBeLessThan(300);
    expect(found(s).max_micro_batch).toBeGreaterThanOrEqual(294);
    expect(found(s).known_bad_micro_batch).toBe(300);
  });

  it('takes the failure of a process that kept something of each size for what it is', () => {
    let kept = 0;
    const job: Job = {
      run: (probe, warm) => {
        kept = warm ? kept + 25 * MIB : 0;
        const { peaks, ...result } = plainJob({ budget: BUDGET - kept }).run(probe, warm);
        const added = peaks && Object.fromEntries(Object.entries(peaks).map(([part, bytes]) => [part, bytes + kept]));
        return { ...result, peaks: added };
      },
    };
    const s = search(job, constraints(base));
    const failure = s.observations.find((o) => o.outcome !== 'fit');
    expect(failure).toMatchObject({ fresh: false });
    expect(failure?.micro_batch).toBeLessThan(450);
    expect(found(s).max_micro_batch).toBeGreaterThanOrEqual(430);
    expect(found(s).max_micro_batch).toBeLessThanOrEqual(450);
  });

  const worn = [20, 200, 600].flatMap((resident) =>
    [0.1, 2].flatMap((perSample) => [0.005, 0.02, 0.035].map((more) => ({ resident, perSample, more }))),
  );
  it.each(worn)(
    'tries a size again, fresh, that failed in a process which held more than a fresh one does: $resident MiB, $perSample MiB a sample, $more more',
    ({ more, ...curve }) => {
      const fresh = (budget: number) =>
        plainJob({ resident: curve.resident * MIB, perSample: curve.perSample * MIB, optimizer: 30 * MIB, budget });
      const job: Job = {
        run: (probe, warm) => {
          const times = warm ? 1 + more : 1;
          const { peaks, ...result } = fresh(BUDGET / times).run(probe, warm);
          const part = ([name, bytes]: [string, number | null]) => [name, bytes === null ? null : bytes * times];
          return { ...result, peaks: peaks && Object.fromEntries(Object.entries(peaks).map(part)) };
        },
      };
      const s = search(job, constraints(base));
      const fits = (size: number) =>
        fresh(BUDGET).run({ ...(s.probes[0] as Probe), micro_batch: size }, false).outcome === 'fit';
      expect(fits(found(s).max_micro_batch)).toBe(true);
      expect(fits(closingSize(found(s).max_micro_batch))).toBe(false);
      expect(s.oomLaunches).toBeLessThanOrEqual(2);
      expect(s.probes.length).toBeLessThanOrEqual(12);
    },
  );

  it('believes only fresh processes when one of them cannot take what a warm one took', () => {
    const job: Job = {
      run: (probe, warm) =>
        probe.micro_batch > (warm ? 400 : 390) ? { outcome: 'device_oom' } : plainJob().run(probe, warm),
    };
    const { max_micro_batch: maxMicroBatch } = found(search(job, constraints(base)));
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
    expect(found(s)).toMatchObject({ max_micro_batch: 1, config: { amp: 'off', checkpointing: true } });
    const two = search(job, constraints({ ...base, rungs, minBatch: 2 }));
    expect(found(two)).toMatchObject({ max_micro_batch: 3, config: { amp: 'bf16', checkpointing: true } });
    expect(found(two).notes.join(' ')).toContain('changes the numerics');
  });

  it('is exhausted with the evidence of the smallest size when nothing fits, even while loading', () => {
    const job: Job = { run: () => ({ outcome: 'device_oom', phase: 'load', evidence: 'CUDA out of memory.' }) };
    const s = search(job, constraints({ ...base, rungs }));
    expect(s.last).toMatchObject({ type: 'exhausted', evidence: 'CUDA out of memory.' });
    expect(s.last.type === 'exhausted' && s.last.why).toContain('while the job was still loading');
    // Knobs that the hook turns on at the first step change nothing of what comes before it; flags of the command may.
    expect(s.probes.map((p) => p.micro_batch)).toEqual([1]);
    const flags = search(job, constraints({ ...base, rungs, driven: false }));
    expect(flags.probes.map((p) => p.micro_batch)).toEqual([1, 1, 1, 1]);
  });

  it('gives the fastest rung with objective throughput, at the same effective batch', () => {
    const speed = (rung: Rung) => (rung.checkpointing ? 0.7 : 1) * (rung.amp === 'off' ? 100 : 180);
    const slow = plainJob({ factor, gradients: 20 * MIB });
    const job: Job = {
      run: (probe, warm) => {
        const result = slow.run(probe, warm);
        const rate = (speed(probe.rung) * probe.micro_batch) / (probe.micro_batch + 8);
        return { ...result, step_s: (probe.micro_batch * probe.accumulation) / rate };
      },
    };
    const s = search(job, constraints({ ...base, rungs, objective: 'throughput', effectiveBatch: 512 }));
    const { config, samples_per_s: samplesPerSecond, max_micro_batch: maxMicroBatch } = found(s);
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
    let compared = false;
    const turn = (why: string): boolean => why.startsWith('the rungs are compared');
    const job: Job = {
      run: (probe, warm) => {
        compared ||= turn(probe.why);
        // The first rung is fast until it is chosen, and slow whenever it is looked at again.
        const rate = probe.rung.checkpointing ? 80 : compared && !turn(probe.why) ? 60 : 100;
        const factor = (rung: Rung) => (rung.checkpointing ? 0.25 : 1);
        return { ...plainJob({ factor }).run(probe, warm), step_s: probe.micro_batch / rate };
      },
    };
    const s = search(job, constraints({ ...base, rungs, objective: 'throughput' }));
    const last = s.probes.findLastIndex(({ why }) => turn(why));
    expect(last).toBeGreaterThan(0);
    expect(s.probes.slice(last + 1).every(({ rung }) => rung === rungs[0])).toBe(true);
    expect(found(s).config.checkpointing).toBe(false);
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
      run: (probe, warm) => (probe.micro_batch > 100 ? { outcome, evidence: 'the line' } : plainJob().run(probe, warm)),
    };
    const s = search(job, constraints(base));
    expect(s.last).toEqual({ type: 'failed', failure: outcome, evidence: 'the line' });
    expect(s.probes.at(-1)?.micro_batch).toBeGreaterThan(100);
  });

  it('an ambiguous failure is memory when a smaller size fits', () => {
    const job: Job = {
      run: (probe, warm) => ({ ...plainJob().run(probe, warm), ambiguous: probe.micro_batch > 450 }),
    };
    expect(found(search(job, constraints(base))).max_micro_batch).toBe(450);
  });

  it('an ambiguous failure is tried much smaller before more is asked of the job', () => {
    const job: Job = { run: (probe) => ({ outcome: 'device_oom', ambiguous: probe.micro_batch > 4 }) };
    const s = search(job, constraints({ ...base, goal: 'keep', ownBatch: 64, effectiveBatch: 64, driven: false }));
    expect(s.probes.slice(0, 2).map((p) => p.micro_batch)).toEqual([64, 32]);
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
    const { max_micro_batch: maxMicroBatch, notes } = found(s);
    expect(s.probes.map((p) => p.micro_batch)).toContain(maxMicroBatch);
    expect(notes.join(' ')).toContain('only 3 launches');
  });

  it('names the limit when nothing was verified', () => {
    const job = plainJob({ perSample: 2000 * MIB });
    const s = search(job, constraints({ ...base, rungs: [AS_IT_STANDS, CHECKPOINTING], maxLaunches: 1 }));
    expect(s.last).toMatchObject({ type: 'exhausted', evidence: 'out of memory at 1' });
    expect(s.last.type === 'exhausted' && s.last.why).toContain('only one launch is allowed');
  });

  it('does not end a search whose fresh processes are forks of its only launch', () => {
    const bounded = search(plainJob(), constraints({ ...base, maxLaunches: 1 }), false, 400, true);
    const free = search(plainJob(), constraints(base), false, 400, true);
    expect(bounded.launches).toBe(1);
    expect(found(bounded)).toEqual(found(free));
    expect(found(bounded)).toMatchObject({ max_micro_batch: 450, config: { micro_batch: 435 } });
  });

  it('ends one that a fork could go on with only on another rung', () => {
    const job = plainJob({ perSample: 2000 * MIB, factor: (rung) => (rung.checkpointing ? 0.01 : 1) });
    const c = { ...base, rungs: [AS_IT_STANDS, CHECKPOINTING], maxLaunches: 1 };
    expect(search(job, constraints({ ...c, switches: false }), false, 400, true).last).toMatchObject({
      type: 'exhausted',
    });
    expect(found(search(job, constraints(c), false, 400, true)).config.checkpointing).toBe(true);
  });

  it('keeps the last launch for the verification', () => {
    const s = search(plainJob(), constraints({ ...base, maxLaunches: 2 }));
    expect(found(s).max_micro_batch).toBe(450);
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

describe('a script that cannot train on one sample', () => {
  const evidence =
    'ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 800])';
  const job: Job = {
    run: (probe, warm) => (probe.micro_batch === 1 ? { outcome: 'user_error', evidence } : plainJob().run(probe, warm)),
  };

  it('is searched from two on, and says so', () => {
    const s = search(job, constraints(base));
    expect(s.probes.slice(0, 2).map((p) => p.micro_batch)).toEqual([1, 2]);
    expect(found(s)).toMatchObject({ max_micro_batch: 450 });
    expect(found(s).notes.join(' ')).toContain('sizes begin at 2');
    expect(s.launches).toBe(3);
  });

  it('keeps its effective batch from two on where its own batch does not fit', () => {
    const keeps = { ...base, ownBatch: 600, effectiveBatch: 600, goal: 'keep' as const };
    const answer = found(search(job, constraints(keeps)));
    expect(answer.config).toMatchObject({ effective_batch: 600 });
    expect(answer.config.micro_batch).toBeGreaterThan(1);
    // Below its smallest part but one there is nothing to try.
    const least = found(search(job, constraints({ ...keeps, maxBatch: 4 })));
    expect(least.config).toMatchObject({ micro_batch: 4, accumulation: 150 });
  });

  it('is searched from the size on that it is told to begin at, and says so', () => {
    const pairs = (probe: { micro_batch: number }) => ({
      evidence: 'no pair',
      begin_at: probe.micro_batch === 1 ? 2 : 32,
    });
    const few: Job = {
      run: (probe, warm) =>
        probe.micro_batch < 32 ? { outcome: 'user_error', ...pairs(probe) } : plainJob().run(probe, warm),
    };
    for (const minBatch of [1, 2]) {
      const s = search(few, constraints({ ...base, minBatch }));
      expect(s.probes.slice(0, 3).map((p) => p.micro_batch)).toContain(32);
      expect(found(s)).toMatchObject({ max_micro_batch: 450 });
      expect(found(s).notes.join(' ')).toContain('fails with 2 samples at a time (no pair), so the sizes begin at 32');
    }
  });

  it('fails with its own words where two do not help, or something else is wrong', () => {
    const two: Job = { run: () => ({ outcome: 'user_error', evidence }) };
    expect(search(two, constraints(base)).last).toMatchObject({ type: 'failed', failure: 'user_error', evidence });
    const other: Job = { run: () => ({ outcome: 'user_error', evidence: 'ValueError: x' }) };
    const s = search(other, constraints(base));
    expect(s.last).toMatchObject({ type: 'failed', evidence: 'ValueError: x' });
    expect(s.probes).toHaveLength(1);
  });
});
