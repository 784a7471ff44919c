import { formatBytes } from '../../common/size.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import type { RunReport } from '../../contract/reports.js';
import type { Session } from '../launch/session.js';
import { ledgerPeak } from '../search/observe.js';

/** The report of a job without a launch. */
export function emptyReport(
  job: string,
  known: Pick<RunReport, 'config' | 'cut' | 'key' | 'launches' | 'wall_s'>,
): RunReport {
  return {
    ...known,
    schema: 1,
    job,
    exit_code: null,
    signal: null,
    outcome: 'failed',
    devices: [],
    refused: 0,
    refusals: [],
    blind: false,
    resident_bytes: null,
    failure: null,
  };
}

/** `empty` with the result of the last launch. */
export function reportOf(empty: RunReport, exit: Exit, failure: Diagnosis | null, aborted: boolean): RunReport {
  const cancelled = aborted || exit.ended_by === 'cancel';
  const ended = exit.ended_by === 'timeout' ? 'timeout' : exit.code === 0 ? 'succeeded' : 'failed';
  return {
    ...empty,
    exit_code: exit.code,
    signal: exit.signal,
    outcome: cancelled ? 'cancelled' : ended,
    devices: (exit.ledger?.devices ?? []).map(({ live_bytes: _, overhead_bytes: __, ...device }) => device),
    refused: exit.ledger?.refused ?? 0,
    refusals: exit.ledger?.refusals ?? [],
    blind: exit.ledger?.blind ?? false,
    resident_bytes: exit.resident_bytes ?? null,
    failure,
    ended_at: exit.ended_at,
    ...(exit.stuck === undefined || exit.error === null ? {} : { still_running: exit.error }),
  };
}

/** Null: the hook has not told. An exception that is of another kind than the failure was got over. */
export function diedAt(
  { exception, steps }: Pick<Session, 'exception' | 'steps'>,
  failure: Diagnosis,
): RunReport['died_at'] | null {
  const isTheEnd = exception !== null && exception.oom === (failure.class === 'device_oom');
  const line = isTheEnd ? (exception.frame ?? null) : null;
  return line === null && steps === 0 ? null : { line, steps };
}

/** Interpreters and libraries alone may take so much. */
const USUAL_BYTES = 512 * 1024 ** 2;

/** A note for a CPU job with far more memory than its budget counted, as `mmap` of its own is not counted; null: none. */
export function unseenMemory(exit: Exit, budgetBytes: number | null): string | null {
  const { resident_bytes: resident } = exit;
  if (budgetBytes === null || resident === undefined) return null;
  const seen = ledgerPeak(exit.ledger) ?? 0;
  if (resident - seen <= Math.max(budgetBytes, USUAL_BYTES)) return null;
  return `A process of the job had ${formatBytes(resident)} in memory, of which the budget of ${formatBytes(budgetBytes)} saw ${formatBytes(seen)}: what a program maps by itself (mmap) is not counted.`;
}
