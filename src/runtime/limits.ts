/** Limits on device memory that the driver or the kernel offers by itself, looked for where they would be. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { systemText } from '../common/regular-file.js';
import type { FirstPartyLimit } from '../contract/launch.js';
import type { NativeGpu } from './native.js';

/** What offers a limit on this machine. */
export interface Offers {
  /** An MPS control daemon answers to the programs that are started here. */
  mps: boolean;
  /** Regions of the kernel's dmem controller that a job's cgroup can be held to, by the PCI bus id of their device. */
  regions: Map<string, string>;
}

/**
 * Is an MPS control daemon at work in the folder that CUDA programs look in? It leaves its socket behind when it ends, but
 * not its pid. In a container that pid may be another namespace's: then that the file is there has to do.
 */
export function mpsRuns(env: NodeJS.ProcessEnv, proc = '/proc'): boolean {
  const folder = env.CUDA_MPS_PIPE_DIRECTORY || '/tmp/nvidia-mps';
  if (!statSync(join(folder, 'control'), { throwIfNoEntry: false })) return false;
  const pid = systemText(join(folder, 'nvidia-cuda-mps-control.pid')).trim();
  if (!/^\d+$/.test(pid)) return false;
  const name = systemText(join(proc, pid, 'comm')).trim();
  if (name !== '') return name.startsWith('nvidia-cuda-mps');
  return !inFirstNamespace(proc);
}

/** The kernel's first pid namespace, in which the driver's pids are ours (PROC_PID_INIT_INO). */
export function inFirstNamespace(proc = '/proc'): boolean {
  try {
    return statSync(join(proc, 'self/ns/pid')).ino === 4026531836;
  } catch {
    return false;
  }
}

/**
 * The regions that dmem.capacity lists ("drm/0000:17:00.0/vram0 85899345920"; in the root group alone), if our own group
 * hands the controller on to the groups that are made in it.
 */
export function dmemRegions(
  root = '/sys/fs/cgroup',
  membership = systemText('/proc/self/cgroup'),
): Map<string, string> {
  const regions = new Map<string, string>();
  const own = /^0::(\/.*)$/m.exec(membership)?.[1];
  if (own === undefined) return regions;
  const handedOn = systemText(join(root, own, 'cgroup.subtree_control'))
    .trim()
    .split(/\s+/);
  if (!handedOn.includes('dmem')) return regions;
  for (const line of systemText(join(root, 'dmem.capacity')).split('\n')) {
    const [, region, bus] = /^(drm\/([0-9a-f:.]+)\/vram\d*) \d+$/.exec(line) ?? [];
    if (region !== undefined && bus !== undefined && !regions.has(bus)) regions.set(bus, region);
  }
  return regions;
}

export function offers(env: NodeJS.ProcessEnv = process.env): Offers {
  return { mps: mpsRuns(env), regions: existsSync('/sys/fs/cgroup/dmem.capacity') ? dmemRegions() : new Map() };
}

/** The one that holds a job to its budget, the strictest first; `mig` holds it to the size of the part. */
export function firstPartyLimit(gpu: NativeGpu, { mps, regions }: Offers): FirstPartyLimit {
  // A region is a whole GPU's: what one part of it may take cannot be said there.
  if (gpu.mig < 0 && regions.has(gpu.bus)) return 'dmem';
  if (mps) return 'mps';
  return gpu.mig >= 0 ? 'mig' : 'none';
}

/** What MPS is to be told of a job with `count` devices; MPS counts in MiB, and for each process by itself. */
export function mpsEnvironment(count: number, budgetBytes: number): Record<string, string> {
  const limit = `${Math.ceil(budgetBytes / 1024 ** 2)}M`;
  const devices = Array.from({ length: count }, (_, ordinal) => `${ordinal}=${limit}`);
  return { CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: devices.join(',') };
}
