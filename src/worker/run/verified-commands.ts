import type { Loop } from '../../contract/hook.js';
import type { Recommendation, VerifiedCommand } from '../../contract/recommendation.js';
import type { Carrier, Knob } from '../command/index.js';
import type { OwnBatch } from './reuse.js';

/** What has to be known of a command. */
interface Asked {
  digest: string;
  exactDigest: string;
  own: OwnBatch;
  carrier(knob: Knob): Carrier;
}

/** More are forgotten, the oldest first: a forgotten one costs a probe. */
const KEPT = 64;

/**
 * What the command asks for by itself, where a recommendation is known to hold for it; null: a probe has to tell. A script
 * may read its batch size from words that the digest leaves out, so words that were never run say nothing of it.
 */
export function ownBatchOf(recorded: Recommendation, target: Asked): OwnBatch | null {
  const seen = recorded.commands?.find((one) => one.digest === target.exactDigest);
  if (seen !== undefined) return merge(target.own, seen);
  if (recorded.command_digest !== target.digest) return null;
  const told = target.own.microBatch !== null || target.carrier('micro_batch') !== 'hook';
  return told || recorded.commands === undefined ? merge(target.own, recorded) : null;
}

/** The list with this command as its latest entry. */
export function withCommand(known: readonly VerifiedCommand[], target: Asked, own: OwnBatch): VerifiedCommand[] {
  const entry = {
    digest: target.exactDigest,
    own_batch: own.microBatch,
    own_accumulation: own.accumulation,
    own_samples: own.samples ?? null,
  };
  return [...known.filter((one) => one.digest !== entry.digest), entry].slice(-KEPT);
}

/** What the command and its loop, as far as it was seen, ask for by themselves. */
export const ownOf = ({ own }: Pick<Asked, 'own'>, loop: Loop | null): OwnBatch => ({
  microBatch: own.microBatch ?? loop?.own_batch ?? null,
  accumulation: own.accumulation,
  samples: loop?.samples ?? own.samples ?? null,
});

type Seen = Pick<Recommendation, 'own_batch' | 'own_accumulation'> & Pick<Partial<VerifiedCommand>, 'own_samples'>;

const merge = (own: OwnBatch, seen: Seen): OwnBatch => ({
  microBatch: own.microBatch ?? seen.own_batch ?? null,
  accumulation: own.accumulation ?? seen.own_accumulation ?? null,
  samples: own.samples ?? seen.own_samples ?? null,
});
