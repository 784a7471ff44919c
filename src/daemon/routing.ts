import { hash } from 'node:crypto';
import { parseSize } from '../common/size.js';
import { DEFAULT_ACCELERATOR, HOST, isHost, isNumbered, kindNameOf, ordinalOf } from '../contract/device-id.js';
import type { JobRecord } from '../contract/job.js';
import type { JobOptions } from '../contract/options.js';
import type { Requirement } from '../contract/state.js';
import { KINDS } from '../devices/index.js';

/** Names share queues, as there may be any number of them and each queue is looked at. */
const RECORDED_QUEUES = 16;
/** Of how many parts a percentage is counted before it is rounded up to a whole one. */
const PARTS = 100_000;

export interface HostDevices {
  host: string;
  devices: { id: string; model: string; total_bytes: number }[];
  labels?: string[] | undefined;
  /** Why it takes no jobs; absent or null: it does. */
  lacks?: string | null | undefined;
}

export function requirementOf(options: JobOptions): Requirement {
  const { device, gpus, gpuModel, host, labels = [], budget } = options;
  return {
    kind: kindFor(options),
    gpus,
    model: gpuModel?.toLowerCase() ?? null,
    host,
    // absent where there are none, as the queue's name is made of all that is here
    ...(labels.length === 0 ? {} : { labels: [...new Set(labels)].sort() }),
    device: device !== null && isNumbered(device) ? device : null,
    gib: largeBudget(budget),
    takes: isHost(device) ? '' : takes(options),
  };
}

/** The same with whose queue it is: within it priorities count, and the queues of several users have their turns. */
export function queueOf({ options, owner }: Pick<JobRecord, 'options' | 'owner'>): Requirement {
  return owner === null || acrossOf(options) !== 0 ? requirementOf(options) : { ...requirementOf(options), owner };
}

export const labelFor = (record: Pick<JobRecord, 'options' | 'owner'>): string => labelOf(queueOf(record));

/** The priority that an admin gave it; 0: none. */
export const acrossOf = ({ acrossUsers, priority }: JobOptions): number => (acrossUsers ? priority : 0);

function takes({ name, budget, exclusive, share }: JobOptions): string {
  if (!exclusive && budget !== null) return taken(budget);
  return share && !exclusive ? recorded(name) : 'all';
}

/** Jobs that are packed by what is recorded of their name: those of one name take the same. */
const recorded = (name: string | null): string =>
  `r${Number.parseInt(hash('sha256', name ?? '').slice(0, 8), 16) % RECORDED_QUEUES}`;

/** A GPU without a named kind is of the default one. */
function kindFor({ device, gpus, gpuModel }: JobOptions): Requirement['kind'] {
  if (device !== null) return kindNameOf(device) ?? DEFAULT_ACCELERATOR;
  return gpus > 1 || gpuModel !== null ? DEFAULT_ACCELERATOR : 'any';
}

/** Small budgets fit any host and need no queue of their own. */
function largeBudget(budget: string | null): number {
  const gib = budget === null ? null : inGib(budget);
  return gib !== null && gib > 8 ? gib : 0;
}

/** Rounded up, as each amount is a queue. Invalid sizes share one, and fail when they run. */
function taken(budget: string): string {
  const gib = inGib(budget);
  if (gib !== null) return `${gib}g`;
  const parts = isPart(budget) ? sizeOf(budget, PARTS) : null;
  return parts === null ? 'unclear' : `${Math.ceil((parts * 100) / PARTS)}%`;
}

/** Rounded up; null: a part of an unknown device, or an invalid size. */
function inGib(budget: string): number | null {
  const bytes = isPart(budget) ? null : sizeOf(budget);
  return bytes === null ? null : Math.ceil(bytes / 1024 ** 3);
}

const isPart = (budget: string): boolean => budget.trim().endsWith('%');

/** Null: invalid. */
function sizeOf(budget: string, total?: number): number | null {
  try {
    return parseSize(budget, total);
  } catch {
    return null;
  }
}

/** The queue's name: `any`, `cpu`, `cuda`, with a slug and a digest of further requirements. */
export function labelOf(requirement: Requirement): string {
  const { kind, gpus, model, host, labels = [], device, gib, takes, owner } = requirement;
  const wishes = [
    owner ?? '',
    gpus > 1 ? `x${gpus}` : '',
    model ?? '',
    host ?? '',
    ...labels,
    device === null ? '' : `gpu${ordinalOf(device)}`,
    gib > 0 ? `${gib}g` : '',
    gib > 0 || takes === 'all' ? '' : takes,
  ].filter((wish) => wish !== '');
  if (wishes.length === 0) return kind;
  const digest = hash('sha256', JSON.stringify(requirement)).slice(0, 8);
  const slug = wishes
    .join('-')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 48);
  return `${kind}-${slug}-${digest}`;
}

export function suits(requirement: Requirement, { host, devices, labels = [] }: HostDevices): boolean {
  if (requirement.host !== null && requirement.host !== host) return false;
  if (requirement.labels?.some((label) => !labels.includes(label))) return false;
  const { kind } = requirement;
  const large = devices.filter((device) => device.total_bytes >= requirement.gib * 1024 ** 3);
  const gpus = large.filter(
    (device) =>
      !isHost(device.id) &&
      (kind === 'any' || kindNameOf(device.id) === kind) &&
      (requirement.device === null || device.id === requirement.device) &&
      (requirement.model === null || device.model.toLowerCase().includes(requirement.model)),
  );
  const cpu = large.some((device) => isHost(device.id));
  if (isHost(kind)) return cpu;
  if (kind !== 'any') return gpus.length >= requirement.gpus;
  return gpus.length > 0 || (cpu && devices.every((device) => isHost(device.id)));
}

/** For people: `2 GPUs of model "h200" on gpu-7`. */
export function describe({ kind, gpus, model, host, labels = [], device, gib }: Requirement): string {
  const what =
    kind === HOST ? KINDS[HOST].noun : (device ?? (gpus > 1 ? `${gpus} GPUs` : kind === 'any' ? 'a device' : 'a GPU'));
  return [
    what,
    model === null ? '' : `of model "${model}"`,
    gib === 0 ? '' : `with ${gib} GiB or more`,
    host === null ? '' : `on ${host}`,
    labels.length === 0 ? '' : `on a host with ${labels.map((label) => `"${label}"`).join(', ')}`,
  ]
    .filter((part) => part !== '')
    .join(' ');
}
