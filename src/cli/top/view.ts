import { formatBytes } from '../../common/size.js';
import { formatSpan } from '../../common/span.js';
import { plain } from '../../common/terminal.js';
import type { JobRecord } from '../../contract/job.js';
import type { DeviceEntry, ForegroundEntry } from '../../contract/verbs.js';
import type { Paint } from '../output.js';
import { COLOURS, foregroundCells, hasEnded, jobCells, severalOwners } from '../status-view.js';
import { table } from '../table.js';
import { plural } from '../words.js';

export interface TopPicture {
  devices: DeviceEntry[];
  jobs: JobRecord[];
  foreground: ForegroundEntry[];
  /** Seconds that jobs of this name take, by job, where some have succeeded. */
  expected: Map<string, number>;
}

export const NO_JOBS = 'No jobs. `oomtune submit -- COMMAND…` queues one.';

const BAR = 10;

/** Utilisation, temperature and power are left out where no driver tells them. */
export function renderTopDevices(picture: TopPicture, paint: Paint): string {
  const devices = plain(picture.devices);
  const names = new Map([...picture.jobs, ...picture.foreground].map(({ job, name }) => [job, name]));
  const figure = (title: string, of: (device: DeviceEntry) => number | null, unit: string) =>
    devices.some((device) => of(device) !== null)
      ? [
          {
            title,
            value: (device: DeviceEntry) => {
              const value = of(device);
              return value === null ? '-' : `${Math.round(value)} ${unit}`;
            },
            align: 'right' as const,
          },
        ]
      : [];
  return table(
    devices,
    [
      { title: 'DEVICE', value: (device) => device.id },
      { title: 'MODEL', value: (device) => device.model, widest: 30, least: 8 },
      ...figure('BUSY', (device) => device.utilisation_pct, '%'),
      ...figure('TEMP', (device) => device.temperature_c, '°C'),
      ...figure('POWER', (device) => device.power_w, 'W'),
      { title: 'MEMORY', value: (device) => memory(device), align: 'right' },
      { title: 'RESERVED', value: (device) => formatBytes(device.reserved_bytes), align: 'right' },
      {
        title: 'JOBS',
        value: (device) =>
          device.fault ??
          (device.holders
            .map(({ job, name }: { job: string; name?: string }) => name ?? names.get(job) ?? job)
            .join(', ') ||
            '-'),
        widest: 60,
        least: 8,
      },
    ],
    paint,
  );
}

function memory({ used_bytes: used, total_bytes: total }: DeviceEntry): string {
  const full = total > 0 ? Math.max(0, Math.min(BAR, Math.round((used / total) * BAR))) : 0;
  return `${'█'.repeat(full)}${'░'.repeat(BAR - full)} ${formatBytes(used)} of ${formatBytes(total)}`;
}

type Row = ReturnType<typeof jobRow>;

/** A line for each job and foreground command; `chosen`: the id of the marked one, null: nothing can be chosen. */
export function renderTopJobs(picture: TopPicture, chosen: string | null, paint: Paint): string {
  const rows: Row[] = plain([
    ...picture.foreground.map(foregroundRow),
    ...picture.jobs.map((job) => jobRow(job, picture)),
  ]);
  const said = (name: 'progress' | 'where' | 'config') => rows.some((row) => row[name] !== '-');
  const column = (title: string, name: 'progress' | 'where' | 'config', widest: number, least: number) =>
    said(name) ? [{ title, value: (row: Row) => row[name], widest, least }] : [];
  return table(
    rows,
    [
      ...(chosen === null
        ? []
        : [{ title: ' ', value: (row: Row) => (row.job === chosen ? paint('bold', '>') : ' ') }]),
      { title: 'JOB', value: (row) => (row.job === chosen ? paint('bold', row.job) : row.job) },
      { title: 'NAME', value: (row) => row.name, widest: 24, least: 8 },
      ...(severalOwners(rows) ? [{ title: 'OWNER', value: (row: Row) => row.owner ?? '-', widest: 16, least: 5 }] : []),
      { title: 'STATE', value: (row) => paint(COLOURS[row.state] ?? 'dim', row.state) },
      { title: 'FOR', value: (row) => row.duration, align: 'right' },
      ...column('PROGRESS', 'progress', 30, 8),
      ...column('WHERE', 'where', 24, 8),
      ...column('CONFIG', 'config', 36, 12),
      { title: 'REASON', value: (row) => row.why, widest: 80, least: 12 },
    ],
    paint,
  );
}

const jobRow = (job: JobRecord, { expected }: TopPicture) => ({
  ...jobCells(job),
  owner: job.owner,
  progress: progress(job, expected.get(job.job) ?? null),
});

const foregroundRow = (entry: ForegroundEntry): Row => ({
  ...foregroundCells(entry),
  owner: entry.owner,
  progress: '-',
});

/** How far it is: probes of its search, or its part of the time that it takes as a rule or may take. */
export function progress(job: JobRecord, expected: number | null): string {
  if (hasEnded(job)) return '-';
  if (job.state === 'searching') return job.journal.length === 0 ? 'starting' : plural(job.journal.length, 'probe');
  if (job.state !== 'running' || job.started_at === null) return '-';
  if (job.pause === 'on') return 'paused';
  const passed = (Date.now() - Date.parse(job.started_at)) / 1000;
  const limit = job.options.timeSeconds ?? null;
  const [whole, what] = expected !== null && expected > 0 ? [expected, 'about'] : [limit, 'at most'];
  if (whole === null) return '-';
  return `${Math.min(99, Math.floor((100 * passed) / whole))} % of ${what} ${formatSpan(Math.round(whole))}`;
}

export function counts({ jobs, foreground }: TopPicture): string {
  const working = jobs.filter(({ state }) => state === 'running' || state === 'searching').length + foreground.length;
  const waiting = jobs.filter(({ state }) => state === 'queued' || state === 'held').length;
  return `${working} working, ${waiting} waiting`;
}
