import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import type { RunReport } from '../../contract/reports.js';

/** The report of a job of which nothing ran. */
export function emptyReport(
  job: string,
  known: Pick<RunReport, 'config' | 'cut' | 'key' | 'launches' | 'wall_s'>,
): RunReport {
  return {
    schema: 1,
    job,
    exit_code: null,
    signal: null,
    outcome: 'failed',
    config: known.config,
    cut: known.cut,
    key: known.key,
    devices: [],
    refused: 0,
    refusals: [],
    blind: false,
    resident_bytes: null,
    failure: null,
    launches: known.launches,
    wall_s: known.wall_s,
  };
}

/** `empty` filled in with what the last launch came to. */
export function reportOf(empty: RunReport, exit: Exit, failure: Diagnosis | null, aborted: boolean): RunReport {
  const cancelled = aborted || exit.ended_by === 'cancel';
  const ended = exit.ended_by === 'timeout' ? 'timeout' : exit.code === 0 ? 'succeeded' : 'failed';
  return {
    ...empty,
    exit_code: exit.code,
    signal: exit.signal,
    outcome: cancelled ? 'cancelled' : ended,
    devices: (exit.ledger?.devices ?? []).map((device) => ({
      device: device.device,
      peak_bytes: device.peak_bytes,
      budget_bytes: device.budget_bytes,
      measured_by: device.measured_by,
    })),
    refused: exit.ledger?.refused ?? 0,
    refusals: exit.ledger?.refusals ?? [],
    blind: exit.ledger?.blind ?? false,
    resident_bytes: exit.resident_bytes ?? null,
    failure,
    ...(exit.held === undefined || exit.error === null ? {} : { still_running: exit.error }),
  };
}
