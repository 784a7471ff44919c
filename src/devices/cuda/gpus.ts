import { existsSync } from 'node:fs';
import { idOf } from '../../contract/device-id.js';
import type { Device } from '../../contract/launch.js';
import type { NativeGpu, NativeInventory } from '../kind.js';
import { deviceProcess } from '../process.js';
import { firstPartyLimit, inFirstNamespace, type Offers, offers } from './limits.js';

const NO_PROCESSES =
  'The driver does not tell what each process holds here (as in a container): only the whole device is known.';
const FOREIGN_PIDS =
  'The driver names processes by pids that mean nothing here (as in a container): only the whole device is known.';

/** More memory in use than this needs a process to explain it; driver and display use less. */
const UNEXPLAINED_BYTES = 2 * 1024 ** 3;

/** In our own pid namespace, the driver's pids may be those of the outer one. */
function pidsAreForeign(gpu: NativeGpu, proc: string): boolean {
  return !inFirstNamespace(proc) && gpu.processes.some(({ pid }) => !existsSync(`${proc}/${pid}`));
}

function noteOf(gpu: NativeGpu): string | null {
  const accounted = gpu.processes.reduce((sum, process) => sum + (process.used_bytes ?? 0), 0);
  const unknown = gpu.processes.some((process) => process.used_bytes === null);
  const hidden = gpu.processes.length === 0 && gpu.used_bytes > UNEXPLAINED_BYTES;
  if (!gpu.processes_told || unknown || hidden || gpu.used_bytes - accounted > UNEXPLAINED_BYTES) return NO_PROCESSES;
  return null;
}

/**
 * The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order, by index or beginning of the uuid. As in CUDA, an entry that names
 * no GPU ends the list. A divided GPU is named by its parts' uuids, or by its index for the first part.
 */
export function visibleGpus(gpus: NativeGpu[], visible: string | undefined): NativeGpu[] {
  if (visible === undefined) return gpus;
  const chosen: NativeGpu[] = [];
  for (const entry of visible.split(',').map((part) => part.trim())) {
    const gpu = /^\d+$/.test(entry)
      ? gpus.find((candidate) => candidate.index === Number(entry))
      : gpus.find((candidate) => entry.length > 4 && candidate.uuid.startsWith(entry));
    if (!gpu || chosen.includes(gpu)) break;
    chosen.push(gpu);
  }
  return chosen;
}

function deviceOf(gpu: NativeGpu, ordinal: number, driver: string, offered: Offers, proc: string): Device {
  const foreign = pidsAreForeign(gpu, proc);
  const note = foreign ? FOREIGN_PIDS : noteOf(gpu);
  return {
    id: idOf('cuda', ordinal),
    uuid: gpu.uuid || `lost:${gpu.index}`,
    model: gpu.model || 'unknown',
    total_bytes: gpu.total_bytes,
    used_bytes: gpu.used_bytes,
    utilisation_pct: gpu.utilisation_pct ?? null,
    temperature_c: gpu.temperature_c ?? null,
    power_w: gpu.power_w ?? null,
    // Another namespace's pids name other processes here, or none.
    processes: foreign
      ? []
      : gpu.processes.map(({ pid, name, used_bytes }) => deviceProcess(pid, name, used_bytes ?? 0)),
    note,
    fault: gpu.fault || null,
    driver: driver || null,
    bus: gpu.bus || null,
    figures: note === null ? 'process' : 'device',
    first_party_limit: firstPartyLimit(gpu, offered),
  };
}

/** The visible GPUs of an inventory, as devices. */
export function listGpus(
  inventory: NativeInventory,
  visible: string | undefined,
  offered: Offers = offers(),
  proc = '/proc',
): Device[] {
  return visibleGpus(inventory.gpus, visible).map((gpu, ordinal) =>
    deviceOf(gpu, ordinal, inventory.driver, offered, proc),
  );
}
