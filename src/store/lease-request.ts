import { OomtuneError } from '../common/errors.js';
import { formatBytes } from '../common/size.js';
import { isHost } from '../contract/device-id.js';
import type { Device } from '../contract/launch.js';
import type { Foreground } from '../contract/state.js';
import type { ProcessIdentity } from './process-identity.js';

export interface LeaseRequest {
  /** Whose life it stands for; absent: this process's. */
  process?: ProcessIdentity;
  /** Job id: a process that takes over the job takes over its lease. */
  owner: string;
  /** The user whose job it is; absent: who runs this process. */
  user?: string | null;
  /** The priority that an admin gave it: counts before any usage. Absent: 0. */
  across?: number;
  /** GPUs that its user may have at a time; null, absent: any number. */
  mostGpus?: number | null;
  /** Those that suit. */
  devices: Device[];
  /** How many of them, at once or none. */
  count: number;
  /** On each device; null: whole devices. */
  bytes: number | null;
  share: boolean;
  /** Beside one other at most; absent: as many as there is room for. */
  pair?: boolean;
  /** Owners that it is not to be beside: asked each time. */
  avoid?: () => Promise<string[]>;
  /** Who works without a job's record: told by `status` while it holds the lease. Absent: a job has it. */
  foreground?: Foreground | null;
  /** Who waits with a higher one goes first; absent: 0. */
  priority?: number;
  /** Since when it waits, on whichever host (ms since the epoch). Absent: since it asks. */
  waitingSince?: number | undefined;
  /** Waits for leases only: what strangers hold it does without. */
  lenient?: boolean;
  /** With `bytes` null: what must be free of the memory of strangers. Absent: nine tenths of the device. */
  needBytes?: number | null;
  /** How long it will hold them at most, in seconds: may go before others then who cannot start so soon. Absent: not known. */
  lastsSeconds?: number | null;
  /** The devices as they are now: asked while waiting. */
  refresh?: () => Promise<Device[]>;
  signal: AbortSignal;
  /** Told why it waits, when that changes. */
  onWait: (reason: string) => void;
  /** Told each time when it has to go on waiting: whether devices that would do are there, and kept for others. */
  onPassedOver?: (passedOver: boolean) => void;
}

/** A device for the script. `foreign` -1: the driver tells only how much is used, not by whom. */
export function toRequest(device: Device) {
  const known = device.processes.filter((one) => one.ours || one.job);
  const ours = known.reduce((sum, one) => sum + one.used_bytes, 0);
  const blind = device.processes.length === 0 && device.used_bytes > 0;
  return {
    uuid: device.uuid,
    id: device.id,
    total: device.total_bytes,
    used: device.used_bytes,
    foreign: blind ? -1 : Math.max(0, device.used_bytes - ours),
    jobs: known.flatMap(({ job, used_bytes }) => (job ? [{ job, bytes: used_bytes }] : [])),
    host: isHost(device.id),
  };
}

/** The same devices as they are now; a vanished one stays as it was. */
export function stillThere(devices: Device[], now: Device[]): Device[] {
  return devices.map((device) => now.find((one) => one.uuid === device.uuid) ?? device);
}

/** Throws OOMTUNE_DEVICE_MISSING for a request that can never be granted. */
export function checkPossible({ devices, count, bytes }: Pick<LeaseRequest, 'devices' | 'count' | 'bytes'>): void {
  const largeEnough = devices.filter((device) => bytes === null || bytes <= device.total_bytes);
  if (largeEnough.length >= count && count >= 1) return;
  throw new OomtuneError(
    'OOMTUNE_DEVICE_MISSING',
    bytes === null || devices.length < count
      ? `${count} devices are asked for, there are ${devices.length}.`
      : `No device has the ${formatBytes(bytes)} that are asked for.`,
    'See `oomtune devices` for what there is.',
  );
}

/** Why a device is not free, by lease/acquire.lua. */
interface WaitEntry {
  id: string;
  uuid: string;
  total: number;
  foreign: number;
  reserved: number;
  owners: { owner: string; bytes?: number; host: string; expired: boolean }[];
  /** The job that goes first on it, and whose that is. */
  blocked?: string;
  user?: string;
  why?: keyof typeof GOES_FIRST;
}
export type Reply = { granted: string[]; foreign: number[]; record: unknown } | Waits;

interface Waits {
  waits: WaitEntry[];
  passed: boolean;
  /** There are devices, but its user has as many as allowed. */
  limit?: { most: number; used: number };
}

const GOES_FIRST = {
  priority: ({ blocked }: WaitEntry) => `${blocked} has a higher priority`,
  usage: ({ blocked, user }: WaitEntry) => `${user || 'somebody'} has used less lately (${blocked})`,
  waited: ({ blocked }: WaitEntry) => `${blocked} has waited longer for it`,
};

/** In place of what blocks the devices. */
function limitReason({ most, used }: NonNullable<Waits['limit']>, user: string, count: number): string {
  const may = `${used} of the ${most} ${most === 1 ? 'GPU' : 'GPUs'} that ${user} may have at a time ${used === 1 ? 'is' : 'are'} in use`;
  if (count > most) return `cannot start: it asks for ${count} GPUs, and ${user} may have ${most} at a time`;
  return used + count > most ? `waits: ${may}` : `waits: ${may}, and an earlier job of ${user} has the next`;
}

/** One line on what blocks each device, with pids and names of other programs. */
export function waitReason(
  { waits, limit }: Waits,
  devices: Device[],
  request: Pick<LeaseRequest, 'bytes' | 'count' | 'lenient'> & { user: string },
): string {
  if (limit !== undefined) return limitReason(limit, request.user, request.count);
  const wants = request.bytes === null ? 'a whole device' : `${formatBytes(request.bytes)} of a device`;
  const isFree = ({ owners, foreign, blocked }: WaitEntry): boolean =>
    !(Array.isArray(owners) && owners.length > 0) && foreign === 0 && blocked === undefined;
  const taken = [...waits].sort((a, b) => Number(isFree(a)) - Number(isFree(b)));
  const words = taken.slice(0, 4).map((entry) => {
    const owners = Array.isArray(entry.owners) ? entry.owners : []; // Lua writes an empty list as {}
    const parts = owners
      .slice(0, 4)
      .map(({ owner, bytes }) => `${owner} holds ${bytes === undefined ? 'all' : formatBytes(bytes)}`);
    if (owners.length > 4) parts.push(`${owners.length - 4} more hold some`);
    // A lenient request does not wait for other programs, whose figures change all the time
    if (request.lenient ? entry.foreign > entry.total / 2 : entry.foreign > 0) {
      const strangers = (devices.find((device) => device.uuid === entry.uuid)?.processes ?? [])
        .filter((one) => !one.ours)
        .sort((a, b) => b.used_bytes - a.used_bytes)
        .slice(0, 2)
        .map((one) => `${one.name} (pid ${one.pid})`);
      const amount = request.lenient ? 'most of it is' : `${formatBytes(entry.foreign)} are`;
      parts.push(`${amount} used by ${strangers.length > 0 ? strangers.join(', ') : 'processes that are not ours'}`);
    }
    if (entry.why !== undefined) parts.push(GOES_FIRST[entry.why](entry));
    return `${entry.id} of ${formatBytes(entry.total)}: ${parts.join(', ') || (isFree(entry) ? 'free' : 'in use')}`;
  });
  if (waits.length > 4) words.push(`and ${waits.length - 4} more`);
  const many = request.count === 1 ? '' : `${request.count} devices, `;
  return `waits for ${many}${wants}: ${words.join('; ')}`;
}
