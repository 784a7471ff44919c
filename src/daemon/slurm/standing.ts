import { ERROR_CODES } from '../../common/errors.js';
import { formatSpan } from '../../common/span.js';
import type { FailureClass } from '../../contract/failure.js';
import type { JobRecord } from '../../contract/job.js';
import type { RunReport } from '../../contract/reports.js';
import { type SlurmPlace, slurmId } from '../../contract/slurm.js';
import { outcomeOf } from '../outcome.js';
import type { SlurmRow } from './rows.js';

/** What a job left in its folder. */
export interface Left {
  /** Its script has come to its end; null: it has not, or was killed. */
  ended: { code: number; at: number } | null;
  /** Of `oomtune run`; null: it was killed before, or never ran. */
  report: RunReport | null;
  /** It was told to end in favour of another job, and did so in time. */
  preempted: boolean;
}

/** Slurm's states in which nothing more happens, as they end a job. */
const ENDS: Record<string, 'by its own' | 'cancelled' | 'timeout' | FailureClass> = {
  COMPLETED: 'by its own',
  FAILED: 'by its own',
  SPECIAL_EXIT: 'by its own',
  CANCELLED: 'cancelled',
  REVOKED: 'cancelled',
  TIMEOUT: 'timeout',
  DEADLINE: 'timeout',
  NODE_FAIL: 'killed',
  BOOT_FAIL: 'killed',
  PREEMPTED: 'killed',
  OUT_OF_MEMORY: 'host_oom',
};
const RUNS = new Set(['RUNNING', 'COMPLETING', 'SUSPENDED', 'STOPPED', 'SIGNALING', 'RESIZING', 'STAGE_OUT']);

/** A job that Slurm does not list is given so long to be listed again: a shared folder tells late how it ended (ms). */
const LATE_MS = 60_000;

type Patch = Partial<Omit<JobRecord, 'slurm'>> & { slurm: SlurmPlace };
/** What its end says of a job. */
type End = Omit<Patch, 'slurm'>;

/** The record's fields after a look. Null: nothing is new. `row` null: Slurm does not list it. */
export function standing(
  job: JobRecord,
  place: SlurmPlace,
  row: SlurmRow | null,
  left: Left,
  now: number,
): Patch | null {
  const found = row === null ? unlisted(place, left, now) : listed(place, row, left);
  const patch = withMoreMemory(outOfTime(job, left) ? { ...found, ...timeUp(job) } : found);
  const isNew = (name: keyof Patch): boolean =>
    JSON.stringify(patch[name] ?? null) !== JSON.stringify(job[name as keyof JobRecord] ?? null);
  return (Object.keys(patch) as (keyof Patch)[]).some(isNew) ? patch : null;
}

function listed(before: SlurmPlace, row: SlurmRow, left: Left): Patch {
  const slurm: SlurmPlace = { ...before, partition: row.partition, missing_since: null };
  const where = { slurm, host: row.nodes || null, started_at: timeOf(row.startedAt) };
  const end = ENDS[row.state];
  if (row.state === 'PREEMPTED' || (end === 'by its own' && left.preempted))
    return { ...where, ...preempted(slurm, row.nodes, left, row.exitCode) };
  if (end === 'by its own')
    return { ...where, ...byItsOwn(place(slurm), left, row.exitCode ?? (row.state === 'COMPLETED' ? 0 : null)) };
  if (end !== undefined) return { ...where, ...fromOutside(slurm, end, row, left) };
  if (!RUNS.has(row.state)) return { slurm, host: null, started_at: null, state: 'queued', reason: waiting(row, left) };
  // Slurm takes a moment to see the end of a script; what was told to end is told by Slurm how
  if (left.ended !== null && left.report?.outcome !== 'cancelled')
    return { ...where, ...byItsOwn(place(slurm), left, null) };
  const stands = row.state === 'SUSPENDED' || row.state === 'STOPPED';
  return { ...where, state: 'running', reason: stands ? `${row.state.toLowerCase()} by Slurm` : null };
}

function unlisted(before: SlurmPlace, left: Left, now: number): Patch {
  const slurm = { ...before, missing_since: before.missing_since ?? new Date(now).toISOString() };
  if (left.ended !== null && left.preempted) return { slurm: before, ...preempted(before, '', left, null) };
  if (left.ended !== null) return { slurm: before, ...byItsOwn(place(before), left, null) };
  if (now - Date.parse(slurm.missing_since) < LATE_MS)
    return { slurm, reason: `Slurm does not list ${place(slurm)}, and it has not said how it ended` };
  const evidence =
    slurm.id === null
      ? 'It never reached Slurm: the program that submitted it was ended before.'
      : `Slurm no longer lists ${place(slurm)}, and its script did not come to its end: it was ended from outside.`;
  return { slurm, ...failed('killed', evidence, null) };
}

/** oomtune ended it in its time, by an exit code that says other things, too; where it had not launched it there is no report. */
function outOfTime({ options, started_at }: JobRecord, { ended, report }: Left): boolean {
  const seconds = options.timeSeconds ?? null;
  if (seconds === null || ended?.code !== TIME_LIMIT || report !== null || started_at === null) return false;
  return ended.at * 1000 - Date.parse(started_at) >= seconds * 1000;
}
const TIME_LIMIT = ERROR_CODES.OOMTUNE_TIME_LIMIT.exit;

function timeUp({ options }: JobRecord): End {
  const evidence = `It reached its time limit of ${formatSpan(options.timeSeconds ?? 0)} before it was launched.`;
  return { ...failed('timeout', evidence, TIME_LIMIT), state: 'timeout' };
}

/** Its script came to its end, or Slurm says that it ended with this code. */
function byItsOwn(name: string, { ended, report }: Left, code: number | null): End {
  const exit = ended?.code ?? code;
  if (report !== null) {
    const end = told(report);
    const again = report.next_start === undefined ? null : `${report.next_start} \`oomtune retry\` starts it.`;
    return { ...end, reason: again ?? end.reason ?? null, exit_code: report.exit_code ?? exit };
  }
  if (exit === 0) return { state: 'succeeded', reason: null, failure: null, exit_code: 0 };
  if (exit === 3) return { ...failed('device_oom', 'Nothing fits; its log says more.', 3), state: 'exhausted' };
  const how =
    exit === null ? 'failed before it could say how' : `ended with exit code ${exit} before it could write its report`;
  return failed('user_error', `${name} ${how}; \`oomtune logs\` shows what it printed.`, exit);
}

/** What its report says of it. */
const told = (report: RunReport) => ({
  ...outcomeOf(report),
  cut: report.cut,
  devices: report.devices.map(({ device }) => device),
});

/** Slurm ended it. */
function fromOutside(slurm: SlurmPlace, end: string, row: SlurmRow, { ended, report }: Left): End {
  const exit = report?.exit_code ?? ended?.code ?? row.exitCode;
  const known = report === null ? {} : told(report);
  const why = `Slurm ended ${place(slurm)}: ${row.state}${row.reason === '' || row.reason === row.state ? '' : ` (${row.reason})`}${row.nodes === '' ? '' : `, on ${row.nodes}`}.`;
  if (end === 'cancelled') return { ...known, state: 'cancelled', reason: why, failure: null, exit_code: exit };
  return { ...known, ...failed(end as FailureClass, why, exit), state: end === 'timeout' ? 'timeout' : 'failed' };
}

/** Slurm ended it in favour of another job for good: one that is started again waits. */
function preempted(slurm: SlurmPlace, nodes: string, { ended, report }: Left, code: number | null): End {
  const told = report === null ? {} : { ...outcomeOf(report), devices: report.devices.map(({ device }) => device) };
  const where = nodes === '' ? '' : `, on ${nodes}`;
  const evidence = `Slurm preempted ${place(slurm)}${where}, and does not start it again.`;
  const end = failed('killed', evidence, ended?.code ?? code);
  return { ...told, ...end, failure: { class: 'killed', evidence, fields: { advice: '`oomtune retry` does.' } } };
}

/** What the worker advises about the host's memory, in words of the option that sets it here. */
function withMoreMemory(patch: Patch): Patch {
  const { failure } = patch;
  if (failure?.class !== 'host_oom') return patch;
  const told = failure.fields.advice;
  const advice = `Submit it anew with more of the host's memory, by --sbatch --mem=SIZE.${typeof told === 'string' ? ` ${told}` : ''}`;
  return { ...patch, failure: { ...failure, fields: { ...failure.fields, advice } } };
}

function failed(kind: FailureClass, evidence: string, exit: number | null): End {
  return { state: 'failed', reason: null, failure: { class: kind, evidence, fields: {} }, exit_code: exit };
}

function waiting({ state, reason, partition }: SlurmRow, left: Left): string {
  if (/^JobHeld/.test(reason)) return `held in Slurm's partition ${partition}: ${reason}`;
  if (left.preempted) return `was preempted, and waits in Slurm's partition ${partition} to be started again`;
  if (reason === 'BeginTime') return `waits in Slurm's partition ${partition} for its time to begin`;
  const said = [state === 'PENDING' ? '' : state.toLowerCase(), reason].filter(Boolean).join(', ');
  return `waits in Slurm's partition ${partition}${said === '' ? '' : `: ${said}`}`;
}

const place = (slurm: SlurmPlace): string => `Slurm's job ${slurmId(slurm)}`.replace("Slurm's job null", 'the job');
const timeOf = (seconds: number | null): string | null =>
  seconds === null ? null : new Date(seconds * 1000).toISOString();
