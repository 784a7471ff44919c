import { OomtuneError } from '../../common/errors.js';
import type { Loop } from '../../contract/hook.js';
import type { JobOptions } from '../../contract/options.js';
import type { Rung } from '../../contract/rung.js';
import { ladderFrom } from '../../tuner/index.js';
import type { Target } from '../target.js';

/**
 * The rungs that a job may climb: the ladder, from the command as it stands upwards, narrowed by the options and by what
 * the command's carriers (and the hook, as `can` tells) are able to turn on. Throws OOMTUNE_NO_KNOB when none is left.
 */
export function allowedRungs(
  target: Target,
  options: Pick<JobOptions, 'amp' | 'checkpointing' | 'exact'>,
  can: Loop['can'] | null,
): Rung[] {
  const base = target.baseRung;
  // A device without bf16 takes fp16, where the hook can scale the loss or the command knows of it.
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
  // What the command turns on by itself stays on.
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
