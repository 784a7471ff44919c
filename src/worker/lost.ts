import type { Exit } from '../runtime/types.js';
import type { Diagnosis } from './types.js';

/** Nobody knows how the launch would have ended: its supervisor was killed, or the machine went down. Nothing of it runs. */
export function isLost(exit: Exit): boolean {
  return exit.ended_by === 'supervisor-lost';
}

/** Its log says nothing about that: what stands there was written before. */
export function lostDiagnosis(exit: Exit): Diagnosis {
  return {
    class: 'killed',
    certain: true,
    evidence: exit.error,
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
    cause: 'It was lost while it ran: the machine or the container went down, or somebody killed its supervisor.',
    advice: 'A submitted job is launched again as long as --retries allows; `oomtune retry` runs it anew.',
  };
}
