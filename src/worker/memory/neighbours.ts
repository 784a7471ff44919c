import { formatBytes } from '../../common/size.js';
import { isHost } from '../../contract/device-id.js';
import type { Device } from '../../contract/launch.js';
import { isRefusal } from '../../store/retry.js';
import type { Lease } from '../types.js';

/** Others' memory below this part of a device is not worth a note: the driver uses less. */
const NAMED = 0.01;
const UNNAMED = 0.05;

/** Memory of a device that other programs hold. */
export interface NeighbourMemory {
  device: Device;
  bytes: number;
  /** The largest first; empty where the driver does not tell. */
  names: string[];
}

/** Other programs with memory of the leased devices. */
export function neighbourMemory({ devices, foreign }: Pick<Lease, 'devices' | 'foreign'>): NeighbourMemory[] {
  return devices.flatMap((device, at) => {
    if (isHost(device.id)) return []; // the host is never one's own
    const bytes = foreign[at] ?? 0;
    const names = device.processes
      .filter((one) => !one.ours && one.used_bytes > 0)
      .sort((a, b) => b.used_bytes - a.used_bytes)
      .map(({ name, pid }) => `${name || 'a process'} (pid ${pid})`);
    return bytes > device.total_bytes * (names.length > 0 ? NAMED : UNNAMED) ? [{ device, bytes, names }] : [];
  });
}

/** The part of `budgetBytes` that others leave. */
export function roomBeside(neighbours: NeighbourMemory[], budgetBytes: number): number {
  const free = neighbours.map(({ device, bytes }) => Math.max(0, device.total_bytes - bytes));
  return Math.min(budgetBytes, ...free);
}

/** Who holds the rest, if that leaves less than was asked for. */
export function neighbourNotes(neighbours: NeighbourMemory[], budgetBytes: number): string[] {
  return neighbours
    .filter((one) => roomBeside([one], budgetBytes) < budgetBytes)
    .map(({ device, bytes, names }) => {
      const free = formatBytes(Math.max(0, device.total_bytes - bytes));
      const who = listed(names) ?? "processes that are not oomtune's";
      return `${who} ${names.length === 1 ? 'holds' : 'hold'} ${formatBytes(bytes)} of ${device.id}'s ${formatBytes(device.total_bytes)}; ${free} are left.`;
    });
}

/** A note on speeds measured while others used the devices; null: nobody did. */
export async function sharingNote(lease: Lease, neighbours: NeighbourMemory[]): Promise<string | null> {
  const where = lease.devices.map(({ id }) => id).join(', ');
  const beside = await lease.beside().catch((error: unknown) => {
    if (!isRefusal(error)) throw error;
    return null;
  });
  if (beside === null)
    return `Redis does not tell whether other jobs used ${where} meanwhile, which makes speeds slower.`;
  const others = [...beside, ...neighbours.flatMap(({ names }) => names.slice(0, 3))];
  const who = listed(others);
  if (who === null) return null;
  return `The speeds were not measured alone: ${who} used ${where} meanwhile. With --exclusive no other job of oomtune does.`;
}

function listed(names: string[]): string | null {
  if (names.length === 0) return null;
  const shown = names.slice(0, 4);
  if (names.length > shown.length) shown.push(`${names.length - shown.length} more`);
  return shown.length === 1 ? (shown[0] as string) : `${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`;
}
