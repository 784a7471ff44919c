import type { Session } from '../launch/session.js';
import type { Target } from '../target.js';

/** In the hook's words for a refusal: the batch can be cut at the model's call. */
export const AT_MODEL = '--cut model';

export const WHOLE_LOSS =
  'The loss compares the samples of its batch: micro-batches are made at the call of the model alone, so that it compares all of them.';

/**
 * Whether the hook ended a launch before its first step because the micro-batches that a framework adds up would make another loss than
 * the whole batch, and the next launch may be cut at the model's call instead, which this decides.
 */
export function keepsLossWhole(target: Target, { goodbye, exception }: Session): boolean {
  if (target.wholeLoss || exception !== null || goodbye?.reason !== 'uncut' || !goodbye.message.includes(AT_MODEL))
    return false;
  target.wholeLoss = true;
  return true;
}
