import { formatBytes } from '../common/size.js';
import { formatSpan } from '../common/span.js';
import { plain } from '../common/terminal.js';
import { ENDED_STATES, type JobRecord, type JobState } from '../contract/job.js';
import { rungName } from '../contract/rung.js';
import { slurmId } from '../contract/slurm.js';
import type { ForegroundEntry } from '../contract/verbs.js';
import { isForDaemon, startHelp } from '../contract/waiting.js';
import type { Paint } from './output.js';
import { oneLine, table } from './table.js';
import { ago, configWords, seconds, shellWords } from './words.js';

export const COLOURS: Record<JobState, Parameters<Paint>[0]> = {
  queued: 'yellow',
  held: 'yellow',
  searching: 'cyan',
  running: 'blue',
  succeeded: 'green',
  failed: 'red',
  cancelled: 'dim',
  exhausted: 'red',
  timeout: 'red',
};

export const hasEnded = (job: Pick<JobRecord, 'state'>): boolean => ENDED_STATES.includes(job.state);

/** With one owner, who that is says nothing. */
export const severalOwners = (of: { owner: string | null }[]): boolean =>
  new Set(of.map(({ owner }) => owner)).size > 1;

/** A line for each job and foreground command. */
export function renderJobs(jobs: JobRecord[], foreground: ForegroundEntry[], paint: Paint): string {
  return table(
    plain([...foreground.map(foregroundRow), ...jobs.map(jobRow)]),
    [
      { title: 'JOB', value: (row) => row.job },
      { title: 'NAME', value: (row) => row.name, widest: 24, least: 10 },
      ...(severalOwners([...jobs, ...foreground])
        ? [{ title: 'OWNER', value: (row: Row) => row.owner, widest: 16, least: 5 }]
        : []),
      { title: 'STATE', value: (row) => paint(COLOURS[row.state] ?? 'dim', row.state) },
      { title: 'WHERE', value: (row) => row.where, widest: 28, least: 10 },
      { title: 'FOR', value: (row) => row.duration, align: 'right' },
      { title: 'CONFIG', value: (row) => row.config, widest: 40, least: 12 },
      ...(jobs.some(({ options }) => options.priority !== 0)
        ? [{ title: 'PRIORITY', value: (row: Row) => row.priority, align: 'right' as const }]
        : []),
      { title: 'REASON', value: (row) => row.why, widest: 80, least: 12 },
    ],
    paint,
  );
}

type Row = ReturnType<typeof jobRow>;

const jobRow = (job: JobRecord) => ({
  ...jobCells(job),
  owner: job.owner ?? '-',
  priority: String(job.options.priority),
});

const foregroundRow = (entry: ForegroundEntry): Row => ({
  ...foregroundCells(entry),
  owner: entry.owner ?? '-',
  priority: '-',
});

/** What each list of jobs says of one. */
export const jobCells = (job: JobRecord) => ({
  job: job.job,
  name: job.name,
  state: job.state,
  where: where(job),
  duration: duration(job),
  config: job.config ? configWords(job.config) : '-',
  why: job.state === 'queued' && isForDaemon(job.reason) ? `${job.reason} (\`oomtune daemon start\`)` : why(job),
});

/** What helps a job that nobody will start as things stand; null: it waits for its turn, or has begun. */
export function startRemedy({ job, state, reason, options }: JobRecord): string | null {
  const help = state === 'queued' ? startHelp(reason, options.host) : null;
  return help === null ? null : `${help}; \`oomtune cancel ${job}\` gives it up.`;
}

/** The same of a foreground command, which has no record. */
export const foregroundCells = (entry: ForegroundEntry): ReturnType<typeof jobCells> => ({
  job: entry.job,
  name: entry.name,
  state: entry.verb === 'run' ? 'running' : 'searching',
  where: where(entry),
  duration: duration({ submitted_at: entry.started_at, started_at: entry.started_at, ended_at: null }),
  config: '-',
  why: `oomtune ${entry.verb} in the foreground, process ${entry.pid}`,
});

/** All about one job. */
export function renderJob(raw: JobRecord, paint: Paint): string {
  const job = plain(raw);
  const { advice, tried_bytes: tried } = job.failure?.fields ?? {};
  const lines: [string, string | null][] = [
    ['state', `${paint(COLOURS[job.state] ?? 'dim', job.state)}${why(job) ? `: ${why(job)}` : ''}`],
    ['owner', job.owner],
    ['command', shellWords(job.command)],
    ['folder', job.options.cwd],
    ['where', where(job) === '-' ? null : where(job)],
    ['slurm', slurmText(job)],
    ['config', job.config ? `${configWords(job.config)}, ${rungName(job.config)}` : null],
    ['budget', job.options.budget],
    ['priority', job.options.priority === 0 ? null : String(job.options.priority)],
    ['tags', job.options.tags?.join(', ') ?? null],
    ['time limit', job.options.timeSeconds == null ? null : formatSpan(job.options.timeSeconds)],
    ['key', job.key],
    ['submitted', `${job.submitted_at} (${ago(job.submitted_at)})`],
    ['started', job.started_at],
    ['ended', job.ended_at],
    ['exit code', job.exit_code === null ? null : String(job.exit_code)],
    ['failure', job.failure ? `${job.failure.class}${job.failure.evidence ? `: ${job.failure.evidence}` : ''}` : null],
    ['remedy', typeof advice === 'string' && advice !== '' ? advice : startRemedy(job)],
    ['refused', typeof tried === 'number' ? formatBytes(tried) : null],
    ['notification', job.notification ?? null],
    ['launches', job.launches.length === 0 ? null : String(job.launches.length)],
  ];
  const widest = Math.max(...lines.map(([name]) => name.length));
  const body = lines
    .filter((line): line is [string, string] => line[1] !== null)
    .map(([name, value]) => `  ${name.padEnd(widest)}  ${oneLine(value)}`);
  return [`${paint('bold', job.job)}  ${job.name}`, ...body].join('\n');
}

/** `job 123_4 of cluster, partition gpu`; null: a daemon runs it. */
export function slurmText({ slurm }: Pick<JobRecord, 'slurm'>): string | null {
  if (slurm == null) return null;
  const partition = slurm.partition ? `, partition ${slurm.partition}` : '';
  return `job ${slurmId(slurm) ?? 'without a number yet'} of ${slurm.cluster}${partition}`;
}

export function where(job: Pick<JobRecord, 'host' | 'devices'>): string {
  if (job.host === null && job.devices.length === 0) return '-';
  return [job.host, job.devices.join(',')].filter(Boolean).join(':');
}

export function why(job: JobRecord): string {
  if (job.reason) return job.reason;
  if (job.failure) return `${job.failure.class}${job.failure.evidence ? `: ${job.failure.evidence}` : ''}`;
  return '';
}

/** Time waited or run. */
export function duration(job: Pick<JobRecord, 'submitted_at' | 'started_at' | 'ended_at'>): string {
  const from = Date.parse(job.started_at ?? job.submitted_at);
  const to = job.ended_at ? Date.parse(job.ended_at) : Date.now();
  return Number.isFinite(from) ? seconds(Math.max(0, (to - from) / 1000)) : '-';
}
