import { expect, it } from 'vitest';
import { jobsCsv } from '../../src/cli/csv.js';
import { statusEntry } from '../../src/cli/status-entry.js';
import type { StatusEntry } from '../../src/contract/verbs.js';
import { job } from '../store/samples.js';

/** The peak in the line of a job of this size whose command was recorded with `recorded`. */
function peakOf(size: number, recorded: number): string | undefined {
  const config = { micro_batch: size, accumulation: 1, world_size: 1, effective_batch: size };
  const entry: StatusEntry = {
    ...statusEntry(job({ config: { ...config, amp: 'off', checkpointing: false } }), null),
    memory: {
      micro_batch: recorded,
      accumulation: 1,
      peak_bytes: 387_033_921,
      peak_in: 'forward_backward',
      parameters: 18_972_712,
      gradients: 18_972_712,
      optimizer_state: 37_945_448,
      activations: null,
      activations_per_sample: null,
      allocator_slack: null,
      context: null,
      rest: 24_823_249,
    },
  };
  const [titles, line] = jobsCsv([entry])
    .split('\r\n')
    .map((row) => row.split(','));
  return line?.[titles?.indexOf('peak_bytes') ?? -1];
}

it('tells no peak of a size that the job does not have: the same command may be recorded with another one', () => {
  expect(peakOf(512, 512)).toBe('387033921');
  expect(peakOf(512, 8471)).toBe('');
});
