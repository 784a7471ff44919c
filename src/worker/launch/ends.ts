import { constants } from 'node:os';
import { join } from 'node:path';
import { type Diagnosis, NO_FIGURES } from '../../contract/diagnosis.js';
import type { Died } from '../../contract/hook.js';
import { type Exit, type LedgerReading, unseenEnd } from '../../contract/launch.js';
import type { Run } from '../../runtime/types.js';

/** Ends that no supervisor recorded: of a life, and of a launch that was lost. */

/** The ledger of a launch since `then`, the start of a life. */
export function sinceThen(now: LedgerReading | null, then: LedgerReading | null): LedgerReading | null {
  if (now === null || then === null) return now;
  const earlier = new Set(then.refusals.map(({ at, pid }) => `${at} ${pid}`));
  const refusals = now.refusals.filter(({ at, pid }) => !earlier.has(`${at} ${pid}`));
  return {
    ...now,
    refused: now.refused - then.refused,
    refusals,
    // The launch's peak is never reset: if this life did not raise it, only its refusals tell.
    devices: now.devices.map((device, at) => {
      if (device.peak_bytes > (then.devices[at]?.peak_bytes ?? 0)) return device;
      const refusedAt = refusals.filter((one) => one.device === device.device).map((one) => one.live_bytes);
      return { ...device, peak_bytes: Math.max(0, ...refusedAt) };
    }),
  };
}

/** The end of a life whose launch goes on. */
export function exitOf({ code, signal }: Died, startedAt: number, ledger: LedgerReading | null): Exit {
  const end = unseenEnd('job', new Date(startedAt).toISOString());
  return { ...end, code, signal: signal === null ? null : nameOf(signal), ledger };
}

function nameOf(signal: number): string {
  return Object.entries(constants.signals).find(([, number]) => number === signal)?.[0] ?? `SIG${signal}`;
}

/** Whether supervisor or machine were killed, so that how the launch would have ended is unknown. Nothing of it runs. */
export const isLost = (exit: Exit): boolean => exit.ended_by === 'supervisor-lost';

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
    mainExit: () => null,
    signal: () => {},
    end: () => {},
  };
}
