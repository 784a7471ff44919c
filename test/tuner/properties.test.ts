import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Tuner } from '../../src/tuner/index.js';
import { closed, range } from '../../src/tuner/sizes.js';
import type { Constraints, Probe } from '../../src/tuner/types.js';
import { AS_IT_STANDS, constraints, found, type Job, MIB, type Search, search } from './machine.js';

/** A random job: affine activations with kinks and steps, an optimizer's floor, fragmentation, noise, workspaces. */
interface Shape {
  resident: number;
  optimizer: number;
  perSample: number;
  gradients: number;
  kinkAt: number;
  kinkSlope: number;
  stepAt: number;
  stepBytes: number;
  fragmentation: number;
  workspaceBytes: number;
  workspaceEvery: number;
  noise: number;
  warmLoss: number;
  phases: boolean;
  caching: boolean;
  telemetry: boolean;
}

const BUDGET = 2048 * MIB;

const smooth: fc.Arbitrary<Shape> = fc.record({
  resident: fc.integer({ min: 1, max: 900 }).map((n) => n * MIB),
  optimizer: fc.integer({ min: 0, max: 900 }).map((n) => n * MIB),
  perSample: fc.integer({ min: 4, max: 400_000 }).map((n) => n * 1024),
  gradients: fc.integer({ min: 0, max: 150 }).map((n) => n * MIB),
  kinkAt: fc.constant(0),
  kinkSlope: fc.constant(1),
  stepAt: fc.constant(0),
  stepBytes: fc.constant(0),
  fragmentation: fc.constant(0),
  workspaceBytes: fc.constant(0),
  workspaceEvery: fc.constant(1),
  noise: fc.constant(0),
  warmLoss: fc.constant(0),
  phases: fc.boolean(),
  caching: fc.constant(false),
  telemetry: fc.constant(true),
});

const rough: fc.Arbitrary<Shape> = fc
  .tuple(
    smooth,
    fc.record({
      kinkAt: fc.integer({ min: 2, max: 2000 }),
      kinkSlope: fc.double({ min: 0.3, max: 3, noNaN: true }),
      stepAt: fc.integer({ min: 2, max: 2000 }),
      stepBytes: fc.integer({ min: 0, max: 300 }).map((n) => n * MIB),
      fragmentation: fc.double({ min: 0, max: 0.3, noNaN: true }),
      workspaceBytes: fc.integer({ min: 0, max: 100 }).map((n) => n * MIB),
      workspaceEvery: fc.integer({ min: 2, max: 40 }),
      noise: fc.double({ min: 0, max: 0.02, noNaN: true }),
      warmLoss: fc.double({ min: -0.03, max: 0.03, noNaN: true }),
      caching: fc.boolean(),
      telemetry: fc.boolean(),
    }),
  )
  // Unmeasured peaks leave nothing to tell by that a process which takes more than a fresh one has taken too much.
  .map(([base, patch]) => ({
    ...base,
    ...patch,
    warmLoss: patch.telemetry ? patch.warmLoss : Math.abs(patch.warmLoss),
  }));

export function jobOf(shape: Shape, seed = 1): Job & { fits(size: number, accumulation?: number): boolean } {
  let state = seed;
  const random = () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 2147483648 - 0.5;
  };
  const active = (size: number, accumulation: number) =>
    shape.resident +
    (accumulation > 1 ? shape.gradients : 0) +
    size * shape.perSample +
    (shape.kinkAt > 0 ? Math.max(0, size - shape.kinkAt) * (shape.kinkSlope - 1) * shape.perSample * 0.9 : 0) +
    (shape.stepAt > 0 && size >= shape.stepAt ? shape.stepBytes : 0) +
    (Math.floor(size / shape.workspaceEvery) % 2 === 1 ? shape.workspaceBytes : 0);
  const flat = shape.resident + shape.optimizer;
  const peak = (size: number, accumulation: number) =>
    Math.max(active(size, accumulation), flat) * (1 + shape.fragmentation);
  return {
    fits: (size, accumulation = 1) => peak(size, accumulation) <= BUDGET,
    run: (probe, warm) => {
      const { microBatch: size, accumulation } = probe;
      const exact = peak(size, accumulation);
      if (exact * (1 + (warm ? shape.warmLoss : 0)) > BUDGET) return { outcome: 'device_oom' };
      const total = Math.min(BUDGET, exact * (1 + shape.noise * random()));
      return {
        outcome: 'fit',
        peaks: shape.telemetry
          ? {
              totalBytes: total,
              forwardBackwardBytes: shape.phases ? active(size, accumulation) : null,
              optimizerBytes: shape.phases ? flat : null,
              reservedBytes: shape.caching ? total : null,
              residentBytes: shape.phases ? shape.resident : null,
            }
          : {},
      };
    },
  };
}

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
  const { config, maxMicroBatch, notes, verifiedSteps } = s.last.answer;
  const firm = s.observations.filter(
    (o) =>
      o.outcome === 'fit' &&
      (o.fresh ||
        s.observations.some(
          (other) =>
            other.fresh && other.launch === o.launch && other.outcome === 'fit' && other.microBatch >= o.microBatch,
        )),
  );
  const tested = firm.map((o) => o.microBatch);
  expect(tested).toContain(maxMicroBatch);
  expect(tested).toContain(config.micro_batch);
  expect(
    firm.some((o) => o.microBatch === config.micro_batch && o.accumulation >= Math.min(2, config.accumulation)),
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
  it('finds exactly the largest size of a deterministic job, with one OOM and two launches', () => {
    fc.assert(
      fc.property(smooth, (shape) => {
        const job = jobOf(shape);
        fc.pre(job.fits(1) && !job.fits(2 ** 20));
        const c = wanted({});
        const s = search(job, c);
        checkAnswer(s, c, job);
        const { maxMicroBatch } = found(s);
        const proved = shape.phases ? maxMicroBatch + 1 : (found(s).knownBad as number);
        expect(job.fits(proved)).toBe(false);
        expect(closed(maxMicroBatch, proved, range(1, null))).toBe(true);
        expect(s.oomLaunches).toBeLessThanOrEqual(shape.phases ? 1 : 5);
        expect(s.launches).toBeLessThanOrEqual(shape.phases ? 2 : 6);
        expect(s.probes.length).toBeLessThanOrEqual(shape.phases ? 16 : 30);
      }),
      { numRuns: 400 },
    );
  });

  it('comes within 2 per cent where each probe is a launch, in few of them', () => {
    fc.assert(
      fc.property(smooth, (shape) => {
        const job = jobOf(shape);
        fc.pre(job.fits(1) && !job.fits(2 ** 20));
        const c = wanted({});
        const s = search(job, c, true);
        checkAnswer(s, c, job);
        const { maxMicroBatch, knownBad } = found(s);
        expect(knownBad).not.toBeNull();
        expect(closed(maxMicroBatch, knownBad as number, range(1, null))).toBe(true);
        expect(s.launches).toBeLessThanOrEqual(shape.phases ? 9 : 24);
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
        const { maxMicroBatch, knownBad } = found(s);
        expect(knownBad).not.toBeNull();
        expect(closed(maxMicroBatch, knownBad as number, range(1, null))).toBe(true);
        expect(s.probes.length).toBeLessThanOrEqual(100);
        if (shape.telemetry && !perLaunch) expect(s.launches).toBeLessThanOrEqual(20);
      }),
      { numRuns: 1500 },
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
            before.microBatch === o.microBatch &&
            before.rung.amp === o.rung.amp;
          expect(repeated ?? false).toBe(false);
        }
      }),
      { numRuns: 300 },
    );
  });
});
