import type { Observation, Probe } from '../contract/measurement.js';
import { type Doubt, doubtOf, isSteady, mayGrow } from './peaks.js';
import { BELIEVED, mayVary, VARIED } from './step-peaks.js';
import type { Constraints } from './types.js';

/** Optimizer steps of a probe whose speed decides, and from how many seconds on a step tells its speed with fewer. */
const SPEED_STEPS = 5;
const LONG_STEP = 0.1;
/** Optimizer steps that a maximum has to last near a caching allocator's limit, or where its peaks may vary from step to step. */
const VERIFY_STEPS = 10;
/** Steps for which a caching allocator has to be at rest: near the limit it finds out by and by what does not fit. */
const REST_STEPS: Partial<Record<Probe['purpose'], number>> = { own: 8, verify: 8, bound: 3, speed: 3 };
/** One that gives back its cache in each of a few steps will not come to rest. */
const RETRYING_WITHIN = 8;
/** The same where segments can grow: there are next to no pieces that could lie otherwise in a later step. */
const GROWN_VERIFY_STEPS = 5;
/**
 * Optimizer steps that a size above what is proved has to last where the allocator gives back its cache in a steady step: of those that ran for ten, some ran out
 * of memory in their twelfth step (mnist of pytorch/examples on an H100).
 */
const BRIM_STEPS = 20;
const GROWN_REST_STEPS: typeof REST_STEPS = { own: 8, verify: 4, bound: 3, speed: 1 };
const GROWN_RETRYING_WITHIN = 5;

/** Whether a fit ran for as long as a verification does. */
export function isLongEnough({ steps: ran, short }: Observation, steps: number, caching: boolean): boolean {
  return short === true || ran >= (caching ? Math.max(steps, VERIFY_STEPS) : steps);
}

/** How long a probe is to run, by what it is for and by what was seen so far. `proves`: a fit of it may be the answer; `hasFailed`: the size, or a smaller one, has failed. */
export function probeLength(
  {
    purpose,
    size,
    proves,
    hasFailed,
  }: { purpose: Probe['purpose']; size: number; proves: boolean; hasFailed: boolean },
  { steps, budgetBytes, counted, driven }: Constraints,
  seen: readonly Observation[],
  grows: boolean,
): Pick<Probe, 'steps' | 'rest_steps' | 'rest_within'> & Doubt {
  const caching = seen.some((o) => (o.peaks.reserved_bytes ?? 0) > 0);
  const steady = isSteady(size, seen, budgetBytes);
  const more = (): number => {
    if (purpose === 'verify' && caching) return grows ? GROWN_VERIFY_STEPS : VERIFY_STEPS;
    if (!steady && seen.some((o) => mayGrow(o, budgetBytes))) return BELIEVED;
    // Few samples take little time: there the steps show whether their peaks vary, so that most sizes are proved in fewer. A loop that
    // is driven is sent back to its start where it is shorter.
    if (counted && driven && purpose === 'floor') return BELIEVED;
    if (proves && mayVary(size, seen, budgetBytes)) return VARIED;
    // Processes differ, and so few steps tell one from another (timm's MobileNetV3: 92 samples failed, ran for three steps of the next process and died in the
    // fourth of a third).
    if (counted && driven && proves && hasFailed) return BELIEVED;
    return purpose === 'speed' && !stepsAreLong(size, seen) ? SPEED_STEPS : 0;
  };
  return {
    steps: Math.max(steps, more()),
    // The script's own batch is the first that is measured: whether there is such an allocator is not known yet.
    rest_steps: caching || purpose === 'own' ? ((grows ? GROWN_REST_STEPS : REST_STEPS)[purpose] ?? 0) : 0,
    // A size that is only to be seen to fail, or to be recommended, which what gives back its cache never is, is not waited for.
    ...(purpose === 'bound' || purpose === 'speed'
      ? { rest_within: grows ? GROWN_RETRYING_WITHIN : RETRYING_WITHIN }
      : {}),
    ...doubtOf(budgetBytes, { steady, proves }),
    ...(purpose === 'bound' && proves ? { retry_steps: BRIM_STEPS } : {}),
  };
}

/** Whether a step takes so long, as far as the nearest size that was measured tells, that a few tell its speed. */
function stepsAreLong(microBatch: number, seen: readonly Observation[]): boolean {
  const away = (o: Observation): number => Math.abs(Math.log(o.micro_batch / microBatch));
  const timed = seen.filter((o) => o.outcome === 'fit' && o.step_s !== null);
  const near = timed.toSorted((one, other) => away(one) - away(other))[0];
  return near !== undefined && ((near.step_s as number) * microBatch) / near.micro_batch >= LONG_STEP;
}
