import { OomtuneError } from '../../common/errors.js';
import { isHost } from '../../contract/device-id.js';
import type { Loop } from '../../contract/hook.js';
import type { JobOptions } from '../../contract/options.js';
import { ALLOWANCES, type Allowance, type AllowedKnob, type HookKnob, type Rung } from '../../contract/rung.js';
import { ladderFrom, longestWithin } from '../../tuner/index.js';
import type { Answer, Constraints, RungSpeed } from '../../tuner/types.js';
import type { Target } from '../target.js';
import type { LoopFacts } from './loop-facts.js';

/**
 * Part of a framework's memory pool that a size may fill: XLA's autotuner takes other kernels in each process. Of flax's seq2seq example on an H100
 * 6,873 samples filled the pool to the last byte and ran, and ran out of memory in another process (bench/results/upstream.md).
 */
const OF_POOL = 0.99;

/** What processes have shown of the script. */
type Seen = Pick<LoopFacts, 'loop' | 'ownAmp' | 'samples' | 'mostBytes'> & Partial<Pick<LoopFacts, 'longestTokens'>>;

/** The bounds of a search; `unable`: knobs that a probe has shown to do nothing. The tuner sees one batch of a loop that accumulates by itself; `withLoop` turns the answer back. */
export function constraintsOf(
  options: JobOptions,
  target: Target,
  goal: Constraints['goal'],
  { loop, ownAmp, samples, mostBytes, longestTokens = null }: Seen,
  unable: readonly HookKnob[] = [],
): Constraints {
  const driven = target.carrier('micro_batch') === 'hook';
  const ownBatch = target.own.microBatch ?? loop?.own_batch ?? null;
  const times = target.loopAccumulation;
  const { worldSize } = target;
  const asked = options.effectiveBatch === null ? null : Math.max(1, Math.round(options.effectiveBatch / times));
  const accumulated = target.loopAccumulation > 1 ? 1 : (target.own.accumulation ?? 1);
  const own = ownBatch === null ? null : ownBatch * accumulated * worldSize;
  // A request for a larger effective batch is none for the script's micro-batch: looks for the best size.
  const keep = goal === 'keep' && own !== null && (asked === null || asked <= own);
  // The hook repeats samples beyond the end of the data set, but no real step can have more than there are.
  const most = Math.min(
    options.maxBatch ?? Number.POSITIVE_INFINITY,
    samples ?? Number.POSITIVE_INFINITY,
    longestWithin(options.microBatchTokens, longestTokens),
  );
  const can = loop?.can ?? null;
  const not = Object.fromEntries(unable.map((knob) => [knob, false]));
  const forbidden = options.chunkedLoss === 'off' ? { chunked_loss: false } : {};
  const names = Object.entries(ALLOWANCES) as [Allowance, AllowedKnob][];
  const allowed = Object.fromEntries(
    names.map(([name, knob]) => [knob, (can?.[knob] ?? false) && (options.allow?.includes(name) ?? false)]),
  );
  const left = can && { ...can, ...not, ...forbidden, ...allowed, ...(ownAmp ? { amp: false, fp16: false } : {}) };
  const rungs = allowedRungs(target, options, left);
  const switches =
    driven && (can?.switch_rung ?? false) && rungs.every((rung) => target.canSwitch(target.baseRung, rung));
  return {
    rungs,
    minBatch: Math.max(options.minBatch, target.plan.minBatch ?? 1),
    maxBatch: Number.isFinite(most) ? Math.max(1, most) : null,
    effectiveBatch: asked ?? (keep ? own : null),
    worldSize,
    accumulation: options.accumulation,
    objective: options.objective,
    headroomPct: options.headroomPct,
    budgetBytes: Math.min(target.memory.roomBytes, Math.floor(OF_POOL * (mostBytes ?? Number.POSITIVE_INFINITY))),
    steps: options.steps,
    driven,
    switches,
    someBlocks:
      switches &&
      options.checkpointing === 'auto' &&
      target.carrier('checkpointing') === 'hook' &&
      (can?.checkpointed_blocks ?? 0) > 1,
    counted: isHost(target.kind) || mostBytes !== null,
    maxLaunches: options.maxLaunches,
    ownBatch: keep ? ownBatch : null,
    goal: keep ? 'keep' : 'search',
    knownBad: target.knownBad,
    ...(target.expandableSegments === 'out of the question' ? {} : { expandable: target.expandableSegments }),
  };
}

/** An answer whose micro-batches are counted in tokens, as it was measured; `longest` null: the samples' lengths are not known. */
export function inTokens(answer: Answer, longest: number | null): Answer {
  if (longest === null) return answer;
  return { ...answer, config: { ...answer.config, micro_batch_tokens: answer.config.micro_batch * longest } };
}

/** An answer for the whole loop, which accumulates `times` by itself. */
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

/** The rungs that the options and the carriers (the hook by `can`) allow, in order. Throws OOMTUNE_NO_KNOB for none. */
export function allowedRungs(
  target: Target,
  options: Pick<JobOptions, 'amp' | 'checkpointing' | 'exact'>,
  can: Loop['can'] | null,
): Rung[] {
  const base = target.baseRung;
  // A device without bf16 takes fp16, if the hook can scale the loss or the command does.
  const fp16 =
    can !== null &&
    !can.amp &&
    can.fp16 &&
    (target.carrier('amp') === 'hook' || target.plan.supports.amp.includes('fp16'));
  const carries = (knob: 'amp' | 'checkpointing'): boolean => {
    const carrier = target.carrier(knob);
    const possible = knob === 'amp' ? (can?.amp ?? true) || can?.fp16 : can?.checkpointing;
    return carrier === 'hook' ? (possible ?? true) : carrier !== 'none';
  };
  // Keeps what the command turns on by itself.
  const amp = options.amp === 'auto' && base.amp !== 'off' ? base.amp : options.amp;
  const checkpointing = options.checkpointing === 'auto' && base.checkpointing ? 'on' : options.checkpointing;
  const rungs = ladderFrom(target.ladder, {
    amp,
    checkpointing,
    exact: options.exact && base.amp === 'off',
    ...(fp16 ? { half: 'fp16' as const } : {}),
    can: {
      ...can,
      amp: base.amp !== 'off' || carries('amp'),
      checkpointing: base.checkpointing || carries('checkpointing'),
    },
  });
  const { supports } = target.plan;
  const taken = rungs.filter(
    (rung) =>
      (target.carrier('amp') === 'hook' || supports.amp.includes(rung.amp)) &&
      (target.carrier('checkpointing') === 'hook' || supports.checkpointing.includes(rung.checkpointing)),
  );
  if (taken.length === 0) {
    throw new OomtuneError(
      'OOMTUNE_NO_KNOB',
      `The options ask for amp ${options.amp} and checkpointing ${options.checkpointing}${options.exact ? ' with --exact' : ''}, which this command cannot take.`,
      'Leave --amp and --checkpointing at auto, or put {amp} and {checkpointing} where the command takes them.',
    );
  }
  return taken;
}
