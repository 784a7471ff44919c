import type { StatusEntry } from '../contract/verbs.js';
import { shellWords } from './words.js';

type Value = string | number | boolean | null | undefined;

/** The columns of `status --csv`: later versions may add some at the end, but remove or move none. */
const COLUMNS: [title: string, value: (job: StatusEntry) => Value][] = [
  ['job', (job) => job.job],
  ['name', (job) => job.name],
  ['owner', (job) => job.owner],
  ['state', (job) => job.state],
  ['reason', (job) => job.reason],
  ['failure', (job) => job.failure?.class],
  ['host', (job) => job.host],
  ['devices', (job) => job.devices.join(' ')],
  ['priority', (job) => job.priority],
  ['tags', (job) => job.tags.join(' ')],
  ['micro_batch', (job) => job.config?.micro_batch],
  ['accumulation', (job) => job.config?.accumulation],
  ['world_size', (job) => job.config?.world_size],
  ['effective_batch', (job) => job.config?.effective_batch],
  ['amp', (job) => job.config?.amp],
  ['checkpointing', (job) => job.config?.checkpointing],
  ['peak_bytes', peakAtItsSize],
  ['submitted_at', (job) => job.submitted_at],
  ['started_at', (job) => job.started_at],
  ['ended_at', (job) => job.ended_at],
  ['exit_code', (job) => job.exit_code],
  ['key', (job) => job.key],
  ['command', (job) => shellWords(job.command)],
];

/** What is known of a job's memory may be of another size, which the same command was recorded with later. */
function peakAtItsSize({ config, memory }: StatusEntry): number | null {
  return config !== null && memory?.micro_batch === config.micro_batch ? memory.peak_bytes : null;
}

/** Jobs as RFC 4180 has them, with a header; null is empty. */
export function jobsCsv(jobs: StatusEntry[]): string {
  const lines = [COLUMNS.map(([title]) => title), ...jobs.map((job) => COLUMNS.map(([, value]) => field(value(job))))];
  return lines.map((line) => `${line.join(',')}\r\n`).join('');
}

function field(value: Value): string {
  const text = value === null || value === undefined ? '' : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
