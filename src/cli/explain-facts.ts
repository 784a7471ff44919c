import { formatBytes } from '../common/size.js';
import type { JobRecord, JobVersions } from '../contract/job.js';
import { givenOptions } from '../daemon/http/repeat.js';
import type { Paint } from './output.js';
import { oneLine } from './table.js';
import { plural, shellWords } from './words.js';

/** What somebody has to know of a job who was not there: where it ran, and with which budget and options. */
export function askedWords({ options }: Pick<JobRecord, 'options'>, budget: number | null): string {
  const given = givenOptions(options);
  const parts = [
    `Its folder is ${options.cwd}`,
    ...(budget === null ? [] : [`its budget ${formatBytes(budget)}`]),
    ...(given.length === 0 ? [] : [`its options \`${shellWords(given)}\``]),
  ];
  const last = parts.pop();
  return `${parts.length === 0 ? '' : `${parts.join(', ')} and `}${last}.`;
}

/** The notes that were printed meanwhile. */
export const noted = (notes: readonly string[], paint: Paint): string[] =>
  notes.map((note) => `${paint('yellow', 'note:')} ${oneLine(note)}`);

/** `oomtune 0.1.0, Node 24.1.0, Python 3.11.2, torch 2.15.0, NVIDIA H200, driver 570.86`: with what it ran. */
export function versionWords({ device_model, ...versions }: JobVersions): string {
  const { oomtune, node, python, torch, driver } = versions;
  const named = { oomtune, Node: node, Python: python, torch };
  const told = Object.entries(named).flatMap(([name, version]) => (version === null ? [] : [`${name} ${version}`]));
  return `${[...told, device_model, ...(driver === null ? [] : [`driver ${driver}`])].join(', ')}.`;
}

/** `exit code 1`, `SIGKILL`; null: neither is known. */
export function exitWords({ failure, exit_code: code }: Pick<JobRecord, 'failure' | 'exit_code'>): string | null {
  const signal = failure?.fields.signal;
  if (code !== null) return `exit code ${code}`;
  return typeof signal === 'string' ? signal : null;
}

/** `train.py:41 in main, after 12 steps`, as far as the hook told; null: it told nothing. */
export function diedWhere({ failure }: Pick<JobRecord, 'failure'>): string | null {
  const { line, steps } = failure?.fields ?? {};
  const parts = [
    ...(typeof line === 'string' ? [line] : []),
    ...(typeof steps === 'number' && steps > 0 ? [`after ${plural(steps, 'step')}`] : []),
  ];
  return parts.length === 0 ? null : parts.join(', ');
}
