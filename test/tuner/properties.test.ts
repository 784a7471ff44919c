import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Observation, Probe } from '../../src/contract/measurement.js';
import { Tuner } from '../../src/tuner/index.js';
import { MOST_SIZES } from '../../src/tuner/search.js';
import { closingSize, isCloseEnough, range } from '../../src/tuner/sizes.js';
import type { Constraints } from '../../src/tuner/types.js';
import { BUDGET, jobOf, rough, smooth } from './generated.js';
import { AS_IT_STANDS, constraints, found, MIB, mostSizes, type Search, search, sizesOf } from './machine.js';

const limits = fc.record({
  minBatch: fc.integer({ min: 1, max: 8 }),
  maxBatch: fc.option(fc.integer({ min: 8, max: 5000 }), { nil: null }),
  effectiveBatch: fc.option(fc.integer({ min: 1, max: 3000 }), { nil: null }),
  worldSize: fc.constantFrom(1, 1, 2, 3, 8),
  accumulation: fc.constantFrom('auto' as const, 'auto' as const, 'off' as const),
  headroomPct: fc.constantFrom(0, 3, 10),
});

function wanted(patch: Partial<Constraints>): Constraints {
  return constraints({ budgetBytes: BUDGET, ...patch });
}

/** What must hold for every answer on every job. */
function checkAnswer(s: Search, c: Constraints, job: ReturnType<typeof jobOf>): void {
  if (s.last.type !== 'found') return;
  const { config, max_micro_batch: maxMicroBatch, notes, verified_steps: verifiedSteps } = s.last.answer;
  const verified = s.observations.filter(
    (o) =>
      o.outcome === 'fit' &&
      (o.fresh ||
        s.observations.some(
          (other) =>
            other.fresh && other.launch === o.launch && other.outcome === 'fit' && other.micro_batch >= o.micro_batch,
        )),
  );
  // A job that keeps its batch needs no second process to prove what leaves one per cent free: it runs in a fresh one.
  const roomy = (o: Observation) => (o.peaks.total_bytes ?? Number.POSITIVE_INFINITY) <= 0.99 * c.budgetBytes;
  if (c.goal === 'keep') verified.push(...s.observations.filter((o) => o.outcome === 'fit' && roomy(o)));
  const tested = verified.map((o) => o.micro_batch);
  expect(tested).toContain(maxMicroBatch);
  expect(tested).toContain(config.micro_batch);
  expect(
    verified.some((o) => o.micro_batch === config.micro_batch && o.accumulation >= Math.min(2, config.accumulation)),
  ).toBe(true);
  expect(job.fits(config.micro_batch, config.accumulation)).toBe(true);
  expect(job.fits(maxMicroBatch)).toBe(true);
  expect(config.micro_batch).toBeLessThanOrEqual(maxMicroBatch);
  expect(config.micro_batch).toBeGreaterThanOrEqual(c.minBatch);
  if (c.maxBatch !== null) expect(maxMicroBatch).toBeLessThanOrEqual(c.maxBatch);
  expect(verifiedSteps).toBeGreaterThanOrEqual(c.steps);
  expect(config.effective_batch).toBe(config.micro_batch * config.accumulation * c.worldSize);
  if (c.effectiveBatch !== null && config.effective_batch !== c.effectiveBatch) {
    expect(notes.join(' ')).toContain(`instead of ${c.effectiveBatch}`);
    const exactExists = c.effectiveBatch % c.worldSize === 0 && c.minBatch === 1;
    expect(exactExists, 'an exact product was possible').toBe(false);
  }
}

describe('on any curve', () => {
  it('finds exactly the largest size of a deterministic job, with one OOM at most, two launches, and eight sizes', () => {
    fc.assert(
      fc.property(smooth, (shape) => {
        const job = jobOf(shape);
        fc.pre(job.fits(1) && !job.fits(2 ** 20));
        const c = wanted({});
        const s = search(job, c);
        checkAnswer(s, c, job);
        const { max_micro_batch: maxMicroBatch } = found(s);
        // Half a MiB is left to libraries, whose buffers are not the same from run to run.
        const near = maxMicroBatch + 1 + (maxMicroBatch >= 49 ? Math.ceil(MIB / 2 / shape.perSample) : 0);
        const proved = shape.phases ? near : (found(s).known_bad_micro_batch as number);
        expect(job.fits(proved)).toBe(false);
        expect(isCloseEnough(maxMicroBatch, proved, range(1, null))).toBe(true);
        expect(s.oomLaunches).toBeLessThanOrEqual(shape.phases ? 1 : 8);
        expect(s.launches).toBeLessThanOrEqual(shape.phases ? 2 : 9);
        if (shape.phases) expect(sizesOf(s).size).toBeLessThanOrEqual(MOST_SIZES);
        expect(s.probes.length).toBeLessThanOrEqual(shape.phases ? 9 : 30);
      }),
      { numRuns: 400 },
    );
  });

  it('comes within 2 per cent where each probe is a launch, in few of them', () => {
    fc.assert(
      fc.property(smooth, fc.boolean(), (shape, counted) => {
        const job = jobOf(shape);
        fc.pre(job.fits(1) && !job.fits(2 ** 20));
        const c = wanted({ counted });
        const s = search(job, c, true);
        checkAnswer(s, c, job);
        expect(job.fits(closingSize(found(s).max_micro_batch))).toBe(false);
        expect(s.launches).toBeLessThanOrEqual(shape.phases ? 8 : 18);
      }),
      { numRuns: 400 },
    );
  });

  it('answers only what fits, with its bound proved, whatever kinks, steps, noise, fragments and workspaces do', () => {
    fc.assert(
      fc.property(rough, fc.boolean(), fc.integer({ min: 1, max: 1e6 }), (shape, perLaunch, seed) => {
        const job = jobOf(shape, seed);
        fc.pre(job.fits(1) && !job.fits(2 ** 20));
        const c = wanted({});
        const s = search(job, c, perLaunch);
        checkAnswer(s, c, job);
        const { max_micro_batch: maxMicroBatch, known_bad_micro_batch: knownBad } = found(s);
        // By a failure near by, or by the line of peaks where the phases are told apart.
        const byLine = shape.phases && shape.telemetry;
        expect(byLine || (knownBad !== null && isCloseEnough(maxMicroBatch, knownBad, range(1, null)))).toBe(true);
        expect(s.probes.length).toBeLessThanOrEqual(100);
        if (shape.telemetry && !perLaunch) expect(s.launches).toBeLessThanOrEqual(20);
      }),
      { numRuns: 1500 },
    );
  });

  it('comes within 2 per cent where the peak bends upwards: there the line of peaks is proof', () => {
    const kinks = fc.record({
      kinkAt: fc.integer({ min: 2, max: 2000 }),
      kinkSlope: fc.double({ min: 1, max: 3, noNaN: true }),
    });
    fc.assert(
      fc.property(smooth, kinks, (shape, kink) => {
        const job = jobOf({ ...shape, ...kink, phases: true });
        fc.pre(job.fits(1) && !job.fits(2 ** 20));
        const c = wanted({});
        const s = search(job, c);
        checkAnswer(s, c, job);
        expect(job.fits(closingSize(found(s).max_micro_batch))).toBe(false);
      }),
      { numRuns: 800 },
    );
  });

  it('asks one process for eight sizes at most wherever the phases are told apart', () => {
    fc.assert(
      fc.property(rough, fc.integer({ min: 1, max: 1e6 }), (shape, seed) => {
        const job = jobOf({ ...shape, phases: true, telemetry: true }, seed);
        fc.pre(job.fits(1) && !job.fits(2 ** 20));
        expect(mostSizes(search(job, wanted({})))).toBeLessThanOrEqual(MOST_SIZES + 1);
      }),
      { numRuns: 800 },
    );
  });

  it('keeps the effective batch and every limit', () => {
    fc.assert(
      fc.property(rough, limits, fc.boolean(), (shape, patch, perLaunch) => {
        const job = jobOf(shape);
        const c = wanted(patch);
        const s = search(job, c, perLaunch);
        checkAnswer(s, c, job);
        if (s.last.type === 'exhausted' && c.accumulation === 'auto') {
          expect(job.fits(c.minBatch, 2) && shape.warmLoss <= 0 && c.minBatch <= (c.maxBatch ?? 1e9)).toBe(false);
        }
      }),
      { numRuns: 1500 },
    );
  });

  it('holds with objective throughput and with an own batch to keep, too', () => {
    const rungs = [AS_IT_STANDS, { amp: 'bf16' as const, checkpointing: false }];
    fc.assert(
      fc.property(rough, limits, fc.integer({ min: 1, max: 800 }), fc.boolean(), (shape, patch, own, perLaunch) => {
        const job = jobOf(shape);
        const fast = wanted({ ...patch, rungs, objective: 'throughput' });
        checkAnswer(search(job, fast, perLaunch), fast, job);
        const kept = { goal: 'keep' as const, ownBatch: own, effectiveBatch: own * 2, worldSize: 1, headroomPct: 0 };
        const keep = wanted({ ...kept, rungs });
        const s = search(job, keep, perLaunch);
        checkAnswer(s, keep, job);
        if (job.fits(own, 2)) expect(s.launches).toBe(1);
        if (s.last.type === 'found') expect(found(s).config.micro_batch).toBeLessThanOrEqual(own);
      }),
      { numRuns: 800 },
    );
  });

  it('respects the number of launches', () => {
    fc.assert(
      fc.property(rough, fc.integer({ min: 1, max: 4 }), fc.boolean(), (shape, maxLaunches, perLaunch) => {
        const job = jobOf(shape);
        const c = wanted({ maxLaunches });
        const s = search(job, c, perLaunch);
        checkAnswer(s, c, job);
        expect(s.launches).toBeLessThanOrEqual(maxLaunches);
      }),
      { numRuns: 500 },
    );
  });

  it('takes the same way again when a journal is replayed', () => {
    fc.assert(
      fc.property(rough, limits, fc.boolean(), fc.nat(), (shape, patch, perLaunch, at) => {
        const c = wanted(patch);
        const s = search(jobOf(shape), c, perLaunch);
        const again = new Tuner(c);
        const from = s.observations.length === 0 ? 0 : at % s.observations.length;
        for (const o of s.observations.slice(0, from)) again.tell(o);
        for (const [index, o] of s.observations.entries()) {
          if (index < from) continue;
          const action = again.next();
          expect(action).toEqual({ type: 'probe', probe: s.probes[index] as Probe });
          again.tell(structuredClone(o));
        }
        expect(again.next()).toEqual(s.last);
      }),
      { numRuns: 300 },
    );
  });

  it('never probes a rung that is not allowed, nor the same failure twice in a row', () => {
    fc.assert(
      fc.property(rough, (shape) => {
        const s = search(jobOf(shape), wanted({ rungs: [AS_IT_STANDS, { amp: 'bf16', checkpointing: false }] }));
        for (const [index, o] of s.observations.entries()) {
          const before = s.observations[index - 1];
          const repeated =
            before &&
            before.outcome !== 'fit' &&
            before.fresh &&
            before.micro_batch === o.micro_batch &&
            before.rung.amp === o.rung.amp;
          expect(repeated ?? false).toBe(false);
        }
      }),
      { numRuns: 300 },
    );
  });
});
