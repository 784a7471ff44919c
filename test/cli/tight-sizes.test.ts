import { expect, it } from 'vitest';
import { explainRecommendation } from '../../src/cli/explain-view.js';
import type { ProbeRecord } from '../../src/contract/measurement.js';
import { recommendation } from '../store/samples.js';

const plain = (_: string, text: string): string => text;
const GIB = 2 ** 30;

it('explain tells of a size that fills its budget what of that it needs, and that the cache was given back', () => {
  const [sample] = recommendation().probes;
  const fit: ProbeRecord = { ...(sample as ProbeRecord), outcome: 'fit', micro_batch: 336, peak_bytes: 24 * GIB };
  const tight = { ...fit, needed_bytes: 23 * GIB, alloc_retries: 2 };
  const told = (probe: ProbeRecord) => explainRecommendation(recommendation({ probes: [probe] }), plain);
  expect(told(tight)).toMatch(/micro-batch 336: fit, peak 24 GiB.*, 23 GiB of it needed, cache given back 2 times/);
  expect(told(fit)).not.toMatch(/needed|given back/);
});
