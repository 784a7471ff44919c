import { formatBytes } from '../common/size.js';
import type { LeaseDevice, LeaseRequest } from './lease-request.js';

/** What ACQUIRE tells of a device that is not free. */
export interface WaitEntry {
  id: string;
  uuid: string;
  total: number;
  foreign: number;
  reserved: number;
  owners: { owner: string; bytes?: number; host: string; expired: boolean }[];
  /** Who goes first on it, by `outranked`: for his priority, else for how long he has waited. */
  blocked?: string;
  outranked?: boolean;
}
export type Reply = { granted: string[]; foreign: number[]; record: unknown } | { waits: WaitEntry[]; passed: boolean };

/** One line for a person: what is in the way on each device, pids and names of strangers included. */
export function waitReason(
  waits: WaitEntry[],
  devices: LeaseDevice[],
  request: Pick<LeaseRequest<LeaseDevice>, 'bytes' | 'count' | 'lenient'>,
): string {
  const wants = request.bytes === null ? 'all of it' : formatBytes(request.bytes);
  const words = waits.slice(0, 4).map((entry) => {
    const owners = Array.isArray(entry.owners) ? entry.owners : []; // Lua writes an empty list as {}
    const parts = owners
      .slice(0, 4)
      .map(({ owner, bytes }) => `${owner} holds ${bytes === undefined ? 'all' : formatBytes(bytes)}`);
    if (owners.length > 4) parts.push(`${owners.length - 4} more hold some`);
    // Who does without what strangers hold does not wait for them, and their figures change all the time
    if (request.lenient ? entry.foreign > entry.total / 2 : entry.foreign > 0) {
      const strangers = (devices.find((device) => device.uuid === entry.uuid)?.processes ?? [])
        .filter((one) => !one.ours)
        .sort((a, b) => b.used_bytes - a.used_bytes)
        .slice(0, 2)
        .map((one) => `${one.name} (pid ${one.pid})`);
      const amount = request.lenient ? 'most of it is' : `${formatBytes(entry.foreign)} are`;
      parts.push(`${amount} used by ${strangers.length > 0 ? strangers.join(', ') : 'processes that are not ours'}`);
    }
    if (entry.blocked !== undefined)
      parts.push(`${entry.blocked} has ${entry.outranked ? 'a higher priority' : 'waited longer for it'}`);
    return `${entry.id} of ${formatBytes(entry.total)}: ${parts.join(', ') || 'in use'}`;
  });
  if (waits.length > 4) words.push(`and ${waits.length - 4} more`);
  const many = request.count === 1 ? '' : `${request.count} devices, `;
  return `waits for ${many}${wants} of a device: ${words.join('; ')}`.replace(
    'all of it of a device',
    'a whole device',
  );
}
