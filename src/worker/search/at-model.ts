import type { Session } from '../launch/session.js';
import type { Target } from '../target.js';
import { sentence } from './undriveable.js';

/**
 * Whether the hook ended a launch before its first step because micro-batches that a framework adds up would train something else, and
 * the next launch is cut at the model's call instead, which this decides. Returns why; null: it is not.
 */
export function goesToModel(target: Target, { goodbye }: Session): string | null {
  if (target.cutsAtModel || goodbye?.reason !== 'at_model' || !target.cutAtModel()) return null;
  return sentence(goodbye.message);
}
