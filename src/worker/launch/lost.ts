import { join } from 'node:path';
import { type Diagnosis, NO_FIGURES } from '../../contract/diagnosis.js';
import { type Exit, unseenEnd } from '../../contract/launch.js';
import type { Run } from '../../runtime/types.js';

/** Whether supervisor or machine were killed, so that how the launch would have ended is unknown. Nothing of it runs. */
export function isLost(exit: Exit): boolean {
  return exit.ended_by === 'supervisor-lost';
}

/** Not from the log, which was written before. */
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

/** A run whose folder is gone counts as lost. */
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
