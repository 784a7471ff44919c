import { type Diagnosis, NO_FIGURES } from '../../contract/diagnosis.js';
import type { Goodbye, Loop } from '../../contract/hook.js';
import type { Probe } from '../../contract/measurement.js';
import type { JobOptions } from '../../contract/options.js';
import type { Carrier } from '../command/types.js';
import { lastLine } from '../last-lines.js';
import type { Session } from '../launch/session.js';
import type { Target } from '../target.js';

export const PLACEHOLDER =
  'Let the script take its batch size from a flag, and put {micro_batch} where its value goes: -- python train.py --batch-size {micro_batch}.';
/** Without a DataLoader there may be no batch at all: an exact Gaussian process, or an equation's points, are trained whole. */
const PLACEHOLDER_BY_HAND = `${PLACEHOLDER} Where every step trains on all of its data at once there is no batch to set: what helps is a larger --budget, less data or a smaller model.`;
const TARGETS_LATER =
  'Or compute it of fewer samples, or after the step’s own call of the model, or give a larger --budget.';

const CUT_LOADER =
  '--cut loader cuts the batches of the DataLoader instead, where one makes them: the loop then goes round once for each micro-batch, which is not the same for every loop. Or give a larger --budget.';
/** The options that may keep a search from what needs no cut. */
type Knobs = Pick<JobOptions, 'amp' | 'checkpointing'>;
const LEFT_AT_AUTO: Knobs = { amp: 'auto', checkpointing: 'auto' };

/** Where nothing else can be cut, for that reason. */
function noCut(why: string, { amp, checkpointing }: Knobs): string {
  const fixed = [...(amp === 'auto' ? [] : ['--amp']), ...(checkpointing === 'auto' ? [] : ['--checkpointing'])];
  const orAuto = fixed.length === 0 ? '' : `, or leave ${fixed.join(' and ')} at auto, which may do without a cut`;
  return `Give a larger --budget${orAuto}: ${why}. A smaller batch by the script’s own flag trains something else.`;
}
/** How the hook ends its sentence where the loader's batches in parts would be another training, too. */
const NOWHERE = 'nor would --cut loader train the same';
/** How the hook says that the script makes its batches by itself, if it has any. */
const NO_LOADER = 'without a torch DataLoader';

/** The script took no batch size from the hook, which said why. */
export function undriveable(goodbye: Goodbye, steps: number): Diagnosis {
  if (goodbye.reason === 'undriveable')
    return userError(
      `The batch size cannot be set from outside: ${goodbye.message}.`,
      goodbye.message.includes(NO_LOADER) ? PLACEHOLDER_BY_HAND : PLACEHOLDER,
    );
  if (goodbye.reason === 'flood') {
    return userError(
      'The command writes to the socket of oomtune’s hook by itself, and is not listened to any more.',
      'Look for what in the command uses OOMTUNE_HOOK_SOCKET; `--preset none` runs it without the hook.',
    );
  }
  return userError(
    'The training loop ended before it had made 2 optimizer steps at one size.',
    `Let it run for at least ${Math.max(2, steps)} steps. ${PLACEHOLDER}`,
  );
}

/** The script ended well before the hook saw a training loop. */
export function endedUntrained({ logFile, logFrom }: Session): Diagnosis {
  return userError(
    `The script ended, and no training with PyTorch was seen in it${lastLine(logFile, logFrom)}`,
    `Run it alone and see that it trains: it may not start where what an earlier run of it made is still there. ${PLACEHOLDER}`,
  );
}

/** The hook found no cut that certainly gives the same result. */
export const uncut = (goodbye: Goodbye, loop: Loop | null, knobs?: Knobs): Diagnosis =>
  uncutFor(sentence(goodbye.message), loop, knobs);

/** A loop that makes its own batches was to run with others. */
export function byHand(goodbye: Goodbye): Diagnosis {
  const cause = sentence(goodbye.message);
  return { ...userError(cause, `Leave --effective-batch out, or give it as the script’s own. ${PLACEHOLDER}`), cause };
}

/** A recorded configuration has 8-bit moments, and the script's environment has no bitsandbytes any more. */
export const without8bit = (goodbye: Goodbye): Diagnosis => ({
  ...userError(
    sentence(goodbye.message),
    'Install bitsandbytes for the interpreter of the script again, or leave out --allow 8bit-optimizer: what was recorded with it is then not used.',
  ),
  cause: 'The recorded configuration needs bitsandbytes, which is not to be had. Nothing was trained.',
  cure: 'none',
});

/** As `uncut`, with the hook's sentence. */
export function uncutFor(evidence: string | null, loop: Loop | null, knobs: Knobs = LEFT_AT_AUTO): Diagnosis {
  const advice =
    loop?.place === 'call'
      ? noCut('without a DataLoader there is no other place for a cut', knobs)
      : evidence?.includes(NOWHERE)
        ? noCut('in parts, the batches of the loader would train something else, too', knobs)
        : CUT_LOADER;
  return {
    ...userError(evidence ?? 'The batch is not cut at the model’s call.', advice),
    cause: 'The batch could not be cut into micro-batches without training something else.',
    phase: 'train',
    cure: 'none',
  };
}

/** The script trains at its own batch only: its code uses that number elsewhere, too. */
export function usesOwnBatch(
  own: number,
  tried: number,
  failure: Diagnosis,
  place: Loop['place'],
  trains: boolean,
): Diagnosis {
  const elsewhere =
    place === 'call'
      ? 'it has no DataLoader, and its size could not be set at the model’s call, since its code uses the number elsewhere too'
      : 'it uses the number elsewhere than in its DataLoader';
  const cause = trains
    ? `The script trains with its own batch of ${own} and fails with ${tried}: ${elsewhere}.`
    : `The script runs out of memory with its own batch of ${own}, and fails in another way with ${tried}: ${elsewhere}.`;
  const advice = `${cause} ${place === 'call' ? PLACEHOLDER_BY_HAND : PLACEHOLDER}`;
  return {
    ...failure,
    cause,
    advice: `${advice} If it only needs more samples than that, --min-batch sets the size to begin at.`,
  };
}

/** The script raised an error at a size, and trained at a smaller one: a memory of former samples may have to hold a whole batch, say. */
export function failsAbove(fitted: number, failed: number, failure: Diagnosis): Diagnosis {
  return {
    ...failure,
    cause: `The program raised an error at micro-batch ${failed}, and trained at ${fitted}.`,
    advice: `Its size may be the reason (a memory that has to hold a whole batch, say): --max-batch ${fitted} then ends the search there. If it is not, correct the program or its input.`,
  };
}

/** Who was to bring a size to the script, and did not. */
const unheeded = (carrier: Carrier): string =>
  carrier === 'env' ? 'it does not set its batch size from OOMTUNE_MICRO_BATCH' : 'its flag was not recognised';

/** The script ran with more than the command's size. Null: it did not. */
export function neverReached(
  probe: Probe,
  ran: number | null | undefined,
  target: Pick<Target, 'worldSize' | 'carrier'>,
): Diagnosis | null {
  if (!ran || ran <= probe.micro_batch * probe.accumulation * target.worldSize) return null;
  const cause = `Micro-batch ${probe.micro_batch} was asked for, the script ran with ${ran}: ${unheeded(target.carrier('micro_batch'))}.`;
  return { ...userError(cause, PLACEHOLDER), phase: 'train', cause };
}

/** The script ran with the same batch for two sizes in the command. */
export function ignored(one: number, other: number, ran: number, carrier: Carrier): Diagnosis {
  const cause = `Micro-batches ${Math.min(one, other)} and ${Math.max(one, other)} were asked for, the script ran with ${ran} both times: ${unheeded(carrier)}.`;
  return { ...userError(cause, PLACEHOLDER), phase: 'train', cause };
}

/**
 * The script trained, with its own batch, before any loop that the hook can set. `byHand`: it had no optimizer; `gradients`: they
 * were on, as they are where a model is called to be trained.
 */
export function trainedAtItsOwn(verdict: Diagnosis, byHand: boolean, gradients: boolean): Diagnosis | null {
  if (verdict.class !== 'device_oom' || verdict.phase !== 'train') return null;
  if (byHand) return steppedByHand();
  const cause = gradients
    ? 'The script ran out of memory with what it trains on by itself: it has no torch DataLoader, so that no batch size could be set.'
    : 'The script ran out of memory in what it computes without gradients for its first training step (targets, or first weights, say): a batch size is set at the first batch of a training loop or, without a DataLoader, at the first call of a model with gradients, and neither had come.';
  const advice = gradients ? PLACEHOLDER_BY_HAND : `${PLACEHOLDER} ${TARGETS_LATER}`;
  return { ...userError(cause, advice), phase: 'train', cause };
}

/** The script ran out of memory before it had made an optimizer, and made none later either. */
export function steppedByHand(): Diagnosis {
  const cause =
    'The script ran out of memory in a forward pass before it had made a torch optimizer: where it steps its weights by itself no step can be seen, and so no size be set.';
  const advice = `Have an optimizer of torch step the weights: torch.optim.SGD(model.parameters(), lr) does what p.data.add_(p.grad, alpha=-lr) does. ${PLACEHOLDER}`;
  return { ...userError(cause, advice), phase: 'train', cause };
}

/** The hook's text with a capital and a full stop. */
export const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

/** A failure of the command that no log shows. */
export function userError(evidence: string, advice: string): Diagnosis {
  return {
    class: 'user_error',
    certain: true,
    evidence,
    line: null,
    fields: NO_FIGURES,
    phase: 'unknown',
    cause: 'No training step was seen in which the batch size could be set.',
    advice,
  };
}
