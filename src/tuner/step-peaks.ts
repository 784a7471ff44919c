import type { Observation, Probe } from '../contract/measurement.js';

/**
 * Peaks that differ from step to step: samples are drawn, cut or grown at random, experts get other shares, garbage is freed now and
 * then. The highest of a few steps is then less than the highest of a training.
 */

/** Optimizer steps that a size has to last, not only those for which it was measured. */
export const LASTING = 200;
/** From so many steps on what their peaks do is believed: the first make the optimizer's state and fill caches. */
export const BELIEVED = 10;
/** Steps of a probe that is to prove a size whose peaks vary: its highest ones tell what five times as many take. */
export const VARIED = 40;
/** Part of the budget by which peaks may differ from step to step before that is worth more steps. */
const NOISE = 0.002;

/** What a later step may take beyond the highest that was measured, in bytes; 0: nothing, or too few steps were made to tell. */
export function excessBytes({ steps, short, excess_bytes: excess }: Observation): number {
  return steps >= LASTING || (steps < VARIED && !short) ? 0 : (excess ?? 0);
}

/** What a probe whose peaks vary is told by: from how many bytes on, and for how many steps it goes on then. */
export function spreadDoubt(budgetBytes: number, proves: boolean): Pick<Probe, 'spread_bytes' | 'spread_steps'> {
  return { spread_bytes: NOISE * budgetBytes, spread_steps: proves ? VARIED : 0 };
}

/** Whether the peaks of a size are likely to differ from step to step: those of another do, by bytes that may grow with the samples. */
export function mayVary(microBatch: number, seen: readonly Observation[], budgetBytes: number): boolean {
  return seen.some(
    (o) => o.outcome === 'fit' && (o.spread_bytes ?? 0) * Math.max(1, microBatch / o.micro_batch) > NOISE * budgetBytes,
  );
}
