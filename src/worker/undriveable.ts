import type { Diagnosis } from './types.js';

/** The script ran, but nothing in it took a batch size from the hook. */
export function undriveable(evidence: string): Diagnosis {
  return {
    class: 'user_error',
    certain: true,
    evidence,
    line: null,
    fields: {
      tried_bytes: null,
      total_bytes: null,
      free_bytes: null,
      allocated_bytes: null,
      reserved_bytes: null,
      gpu: null,
    },
    phase: 'unknown',
    cause: 'No training step was seen in which the batch size could be set.',
    advice:
      'Run the script alone and see that it trains. If it reads no torch DataLoader, put {micro_batch} where its batch size goes.',
  };
}
