import fc from 'fast-check';
import { type Job, MIB } from './machine.js';

/** A random job: affine activations with kinks and steps, an optimizer's floor, fragmentation, noise, workspaces. */
export interface Shape {
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

export const BUDGET = 2048 * MIB;

export const smooth: fc.Arbitrary<Shape> = fc.record({
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

export const rough: fc.Arbitrary<Shape> = fc
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
      const { micro_batch: size, accumulation } = probe;
      const exact = peak(size, accumulation);
      if (exact * (1 + (warm ? shape.warmLoss : 0)) > BUDGET) return { outcome: 'device_oom' };
      const total = Math.min(BUDGET, exact * (1 + shape.noise * random()));
      return {
        outcome: 'fit',
        peaks: shape.telemetry
          ? {
              total_bytes: total,
              forward_backward_bytes: shape.phases ? active(size, accumulation) : null,
              optimizer_bytes: shape.phases ? flat : null,
              reserved_bytes: shape.caching ? total : null,
              resident_bytes: shape.phases ? shape.resident : null,
            }
          : {},
      };
    },
  };
}
