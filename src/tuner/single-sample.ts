import type { Observation } from '../contract/measurement.js';

/** torch's batch normalization in training mode, given one value for each channel. */
const ALONE = /Expected more than 1 value per channel when training/;

/** Whether a probe failed only because a single sample cannot be trained on: two can. */
export function failsAlone({ micro_batch: microBatch, outcome, evidence }: Observation): boolean {
  return microBatch === 1 && outcome === 'user_error' && ALONE.test(evidence ?? '');
}

export const SINGLE_SAMPLE_NOTE =
  'The script cannot train on one sample at a time (batch normalization), so the sizes begin at 2.';
