import type { Loop } from '../../contract/hook.js';
import type { JobOptions } from '../../contract/options.js';
import type { Answer, Constraints, RungSpeed } from '../../tuner/types.js';
import type { Target } from '../target.js';
import { allowedRungs } from './rungs.js';

/**
 * The bounds of a search. Where the script's own loop accumulates, the tuner sees one of the loop's batches as the whole:
 * `withLoop` puts the loop's own accumulation back into the answer.
 */
export function constraintsOf(
  options: JobOptions,
  target: Target,
  goal: Constraints['goal'],
  loop: Loop | null,
  ownAmp: boolean,
): Constraints {
  const driven = target.carrier('micro_batch') === 'hook';
  const ownBatch = target.own.microBatch ?? loop?.own_batch ?? null;
  const times = target.loopAccumulation;
  const { worldSize } = target;
  const asked = options.effectiveBatch === null ? null : Math.max(1, Math.round(options.effectiveBatch / times));
  const accumulated = target.loopAccumulation > 1 ? 1 : (target.own.accumulation ?? 1);
  const own = ownBatch === null ? null : ownBatch * accumulated * worldSize;
  // Who asks for a larger effective batch does not ask for the script's micro-batch: the best size is looked for.
  const keep = goal === 'keep' && own !== null && (asked === null || asked <= own);
  // The hook repeats samples beyond the end of the data set, but no real step can hold more than there are.
  const samples = driven ? (loop?.samples ?? null) : null;
  const most = Math.min(options.maxBatch ?? Number.POSITIVE_INFINITY, samples ?? Number.POSITIVE_INFINITY);
  const can = loop?.can ?? null;
  return {
    rungs: allowedRungs(target, options, ownAmp && can !== null ? { ...can, amp: false, fp16: false } : can),
    minBatch: Math.max(options.minBatch, target.plan.minBatch ?? 1),
    maxBatch: Number.isFinite(most) ? Math.max(1, most) : null,
    effectiveBatch: asked ?? (keep ? own : null),
    worldSize,
    accumulation: options.accumulation,
    objective: options.objective,
    headroomPct: options.headroomPct,
    budgetBytes: target.roomBytes,
    steps: options.steps,
    driven,
    switches: driven && (can?.switch_rung ?? false),
    maxLaunches: options.maxLaunches,
    ownBatch: keep ? ownBatch : null,
    goal: keep ? 'keep' : 'search',
    knownBad: target.knownBad,
    expandable: target.expandableSegments === 'possible',
  };
}

/** An answer for the whole loop, which goes round `times` for each optimizer step by itself. */
export function withLoop(answer: Answer, times: number): Answer {
  if (times === 1) return answer;
  const { config } = answer;
  const whole = {
    ...config,
    accumulation: config.accumulation * times,
    effective_batch: config.effective_batch * times,
  };
  const { samples_per_s: rate, comparison } = answer;
  const all = comparison && { ...comparison, speeds: comparison.speeds.map((one) => timesAsFast(one, times)) };
  return {
    ...answer,
    config: whole,
    samples_per_s: rate === null ? null : rate * times,
    ...(all ? { comparison: all } : {}),
  };
}

function timesAsFast(speed: RungSpeed, times: number): RungSpeed {
  const { samples_per_s: samplesPerSecond, spread } = speed;
  return { ...speed, samples_per_s: samplesPerSecond * times, spread: spread === null ? null : spread * times };
}
