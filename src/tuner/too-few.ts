import type { Observation } from '../contract/measurement.js';

/** torch's batch normalization in training mode, given one value for each channel. */
const ALONE = /Expected more than 1 value per channel when training/;

type Failure = Pick<Observation, 'micro_batch' | 'outcome' | 'evidence' | 'begin_at'>;

/** Whether a probe failed only because a single sample cannot be trained on: two can. */
export function failsAlone({ micro_batch: microBatch, outcome, evidence }: Failure): boolean {
  return microBatch === 1 && outcome === 'user_error' && ALONE.test(evidence ?? '');
}

/** Whether a probe may have failed only because it had too few samples: the search begins with more. */
export function isTooFew(o: Failure, minBatch = 1): boolean {
  return o.begin_at !== undefined || (minBatch === 1 && failsAlone(o));
}

/** The size that the search begins at after such a probe. */
export const startAfter = ({ begin_at: beginAt = 2 }: Failure): number => beginAt;

/** The next size to begin at where `tried` fails and the script trains at its own batch: two, then a part of that. Null: there is none left. */
export function largerStart(tried: number, own: number, most: number): number | null {
  const starts = [2, Math.floor(own / 4), Math.floor(own / 2)];
  return starts.find((size) => size > tried && size < own && size <= most) ?? null;
}

/** What the answer says of the size that the search began at. */
export function tooFewNote(last: Failure): string {
  if (failsAlone(last))
    return 'The script cannot train on one sample at a time (batch normalization), so the sizes begin at 2.';
  const { micro_batch: tried, evidence } = last;
  const samples = tried === 1 ? '1 sample' : `${tried} samples`;
  return `The script fails with ${samples} at a time (${evidence ?? 'no line says why'}), so the sizes begin at ${startAfter(last)}: --min-batch sets another.`;
}
