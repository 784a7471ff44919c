import { OomtuneError } from '../common/errors.js';
import { homePath } from '../common/home.js';
import { refusal } from '../common/refusal.js';
import type { JobRecord } from '../contract/job.js';
import type { Exit } from '../contract/launch.js';
import type { RunReport } from '../contract/reports.js';
import { configOf } from '../contract/rung.js';
import { StillRunning } from '../worker/launch/still-running.js';
import { TimeUp } from '../worker/run/time-limit.js';

/** The record's fields after a report of the worker. */
export function outcomeOf(report: RunReport): Partial<Omit<JobRecord, 'slurm'>> {
  const { failure } = report;
  const state = report.outcome;
  return {
    state,
    reason: report.still_running ?? null,
    exit_code: report.exit_code,
    ...(report.ended_at === undefined ? {} : { ended_at: report.ended_at }),
    config: report.config && configOf(report.config, report.config),
    key: report.key,
    failure:
      failure === null || failure.class === 'ok' || state === 'succeeded'
        ? null
        : {
            class: failure.class,
            evidence: failure.evidence ?? failure.cause,
            fields: {
              ...failure.fields,
              reason: failure.reason ?? null,
              cure: failure.cure ?? null,
              cause: failure.cause,
              advice: failure.advice,
              signal: report.signal,
              line: report.died_at?.line ?? null,
              steps: report.died_at?.steps ?? null,
            },
          },
  };
}

/** The same after an error of the worker. */
export function failureOf(error: unknown): Partial<JobRecord> {
  const known = error instanceof OomtuneError ? error : refusal(error, homePath());
  const text = known?.message ?? (error instanceof Error ? error.message : String(error));
  const late = error instanceof TimeUp || (error instanceof StillRunning && error.exit.ended_by === 'timeout');
  return {
    state: late ? 'timeout' : 'failed',
    reason: known === null ? `a fault in oomtune: ${text}` : text,
    failure: {
      class: late ? 'timeout' : 'user_error',
      evidence: text,
      fields: { code: known?.code ?? 'OOMTUNE_INTERNAL', advice: known?.remedy ?? 'See the log of the daemon.' },
    },
  };
}

/** Whether a run was through before anybody ended it. */
export const endedWell = (exit: Exit): boolean => exit.code === 0 && exit.ended_by === 'job';

/** The same for a run without a diagnosis, by its exit alone. */
export function plainOutcome(exit: Exit): Partial<JobRecord> {
  const { ended_at } = exit;
  if (exit.code === 0) return { state: 'succeeded', reason: stuckReason(exit), exit_code: 0, ended_at, failure: null };
  const late = exit.ended_by === 'timeout';
  const lost = exit.ended_by === 'supervisor-lost';
  const evidence = exit.error ?? `It ended with ${exit.signal ?? `status ${exit.code}`}.`;
  return {
    state: late ? 'timeout' : 'failed',
    reason: stuckReason(exit),
    exit_code: exit.code,
    ended_at,
    failure: { class: late ? 'timeout' : lost ? 'killed' : 'user_error', evidence, fields: { signal: exit.signal } },
  };
}

const stuckReason = (exit: Exit): string | null => (exit.stuck === undefined ? null : exit.error);
