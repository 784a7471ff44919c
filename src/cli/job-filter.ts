import { usageError } from '../common/errors.js';
import { answersTo, namePattern } from '../common/names.js';
import { DEVICE_CHOICE, DEVICE_CHOICES } from '../contract/device-id.js';
import { ENDED_STATES, type JobRecord, type JobState, jobState } from '../contract/job.js';
import type { ForegroundEntry } from '../contract/verbs.js';

/** What `status` can be narrowed to and sorted by: a job, or a command in the foreground. */
export interface Listed {
  name: string;
  owner: string | null;
  state: JobState;
  host: string | null;
  devices: string[];
  priority: number;
  tags: string[];
  submitted_at: string;
  started_at: string | null;
  ended_at: string | null;
}

export function listedJob(job: JobRecord): Listed {
  return { ...job, priority: job.options.priority, tags: job.options.tags ?? [] };
}

export function listedForeground(entry: ForegroundEntry): Listed {
  const { name, owner, host, devices, started_at } = entry;
  const state = entry.verb === 'run' ? 'running' : 'searching';
  return {
    name,
    owner,
    state,
    host,
    devices,
    priority: 0,
    tags: [],
    submitted_at: started_at,
    started_at,
    ended_at: null,
  };
}

/** Several states under one word. */
const GROUPS: Record<string, readonly JobState[]> = {
  waiting: ['queued', 'held'],
  active: ['searching', 'running'],
  ended: ENDED_STATES,
};
export const STATE_WORDS = [...jobState.options, ...Object.keys(GROUPS)];

/** Milliseconds waited or run; what has no time counts as none. */
function spent({ submitted_at, started_at, ended_at }: Listed): number {
  const from = Date.parse(started_at ?? submitted_at);
  return (ended_at === null ? Date.now() : Date.parse(ended_at)) - from;
}

const SORTS: Record<string, (one: Listed) => string | number | null> = {
  submitted: (one) => Date.parse(one.submitted_at),
  started: (one) => one.started_at && Date.parse(one.started_at),
  ended: (one) => one.ended_at && Date.parse(one.ended_at),
  duration: spent,
  name: (one) => one.name,
  state: (one) => jobState.options.indexOf(one.state),
  owner: (one) => one.owner,
  host: (one) => one.host,
  device: (one) => one.devices.join(',') || null,
  priority: (one) => one.priority,
};
export const SORT_WORDS = Object.keys(SORTS);

export interface JobFilter {
  /** Whether anything is left out. */
  narrows: boolean;
  /** Whether only jobs that have not ended can be meant. */
  liveOnly: boolean;
  keeps(one: Listed): boolean;
  /** In the order asked for; null: none was. Stable. */
  order: ((a: Listed, b: Listed) => number) | null;
}

/** From the options of `status`. Throws OOMTUNE_USAGE. */
export function jobFilter(options: Record<string, unknown>): JobFilter {
  const states = statesOf(options.state);
  const [name, user, host, device, tag] = ['name', 'user', 'host', 'device', 'tag']
    .map((option) => options[option])
    .map((value) => (value === undefined ? null : String(value)));
  if (device != null && !DEVICE_CHOICE.test(device))
    throw usageError(`Expected --device to be ${DEVICE_CHOICES}, got "${device}".`, '`oomtune devices` lists them.');
  const fits = name == null ? null : namePattern(name);
  return {
    narrows: [states, name, user, host, device, tag].some((one) => one !== null),
    liveOnly: states !== null && !ENDED_STATES.some((state) => states.has(state)),
    keeps: (one) =>
      (states === null || states.has(one.state)) &&
      (fits === null || fits.test(one.name) || answersTo(one.name, name as string)) &&
      (user == null || one.owner === user) &&
      (tag == null || one.tags.includes(tag)) &&
      (host == null || one.host === host) &&
      (device == null || one.devices.some((id) => id === device || id.startsWith(`${device}:`))),
    order: orderOf(options.sort),
  };
}

function statesOf(value: unknown): Set<JobState> | null {
  if (value === undefined) return null;
  const words = String(value).split(',');
  const wrong = words.find((word) => !STATE_WORDS.includes(word));
  if (wrong !== undefined) {
    throw usageError(
      `Expected --state to be one or several of ${STATE_WORDS.join(', ')}, got "${wrong}".`,
      'Write them with commas between: --state queued,running.',
    );
  }
  return new Set(words.flatMap((word) => GROUPS[word] ?? [word as JobState]));
}

function orderOf(value: unknown): JobFilter['order'] {
  if (value === undefined) return null;
  const word = String(value);
  const by = SORTS[word.replace(/^-/, '')];
  if (by === undefined) {
    throw usageError(
      `Expected --sort to be one of ${SORT_WORDS.join(', ')}, got "${word}".`,
      'A dash before it turns the order round: --sort -duration.',
    );
  }
  const turn = word.startsWith('-') ? -1 : 1;
  return (a, b) => {
    const [one, other] = [by(a), by(b)];
    if (one === other) return 0;
    if (one === null || other === null) return one === null ? 1 : -1; // what has none stands last, either way round
    if (typeof one === 'number') return turn * (one - Number(other));
    return turn * one.localeCompare(String(other), 'en', { numeric: true });
  };
}
