import { join } from 'node:path';
import { type Diagnosis, NO_FIGURES } from '../../contract/diagnosis.js';
import { type Exit, unseenEnd } from '../../contract/launch.js';
import type { Run } from '../../runtime/types.js';

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
    fields: NO_FIGURES,
    phase: 'unknown',
    cause: 'It was lost while it ran: the machine or the container went down, or somebody killed its supervisor.',
    advice: 'A submitted job is launched again as long as --retries allows; `oomtune retry` runs it anew.',
  };
}

/** A run of which nothing is left, not even its folder: it counts as one that was lost. */
export function runWithoutFolder(dir: string): Run {
  const at = new Date().toISOString();
  const error = `Its folder ${dir} was removed, and nothing of it runs: how it ended is not known.`;
  const exit: Exit = { ...unseenEnd('supervisor-lost', at, error), ended_at: at, ledger: null };
  return {
    dir,
    supervisorPid: 0,
    logFile: join(dir, 'log'),
    ledger: () => null,
    wait: async () => exit,
    end: () => {},
  };
}
