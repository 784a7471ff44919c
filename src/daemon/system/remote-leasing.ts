import type { Device } from '../../contract/launch.js';
import type { LeaseWish } from '../../contract/system.js';
import type { LeaseRequest } from '../../store/lease-request.js';
import type { Lease, Leasing } from '../../worker/types.js';
import type { Channel } from './channel.js';

/** Reservations by way of the daemon: for foreground commands, and in agents. The connection's end gives them back. */
export function remoteLeasing(channel: Pick<Channel, 'call'>): Leasing {
  return {
    async acquire(request: LeaseRequest): Promise<Lease> {
      const { owner, signal, onWait } = request;
      const onNote = (reason: unknown): void => onWait(String(reason));
      const granted = await channel.call<{ lease: number; devices: Device[]; foreign: number[] }>(
        'leasing.acquire',
        [owner, wishOf(request)],
        { signal, onNote },
      );
      return held(channel, owner, granted);
    },
  };
}

const wishOf = (request: LeaseRequest): LeaseWish => ({
  devices: request.devices.map(({ uuid }) => uuid),
  count: request.count,
  bytes: request.bytes,
  share: request.share,
  foreground: (request.foreground ?? null) as LeaseWish['foreground'],
  priority: request.priority ?? 0,
  lenient: request.lenient ?? false,
  needBytes: request.needBytes ?? null,
  lastsSeconds: request.lastsSeconds ?? null,
});

function held(
  channel: Pick<Channel, 'call'>,
  owner: string,
  { lease, devices, foreign }: { lease: number; devices: Device[]; foreign: number[] },
): Lease {
  const call = <T>(name: string, ...args: unknown[]): Promise<T> =>
    channel.call<T>(`leasing.${name}`, [owner, lease, ...args]);
  return {
    devices,
    foreign,
    beside: () => call<string[]>('beside'),
    attach: ({ supervisorPid, dir }) => call<void>('attach', { supervisorPid, dir }),
    resize: (bytes) => call<void>('resize', bytes),
    release: () => call<void>('release'),
    leave: (dir, pids) => call<void>('leave', dir, pids),
  };
}
