/** Limits on device memory that the driver or the kernel offers by itself, looked for where they would be. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { systemText } from '../../common/regular-file.js';
import type { Device, FirstPartyLimit } from '../../contract/launch.js';
import type { NativeGpu } from '../addon.js';
import { dmemRegions } from '../dmem.js';
import type { JobLimits } from '../kind.js';

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

export function offers(env: NodeJS.ProcessEnv = process.env): Offers {
  return { mps: mpsRuns(env), regions: dmemRegions() };
}

/** The one that holds a job to its budget, the strictest first; `mig` holds it to the size of the part. */
export function firstPartyLimit(gpu: NativeGpu, { mps, regions }: Offers): FirstPartyLimit {
  // A region is a whole GPU's: what one part of it may take cannot be said there.
  if (gpu.mig < 0 && regions.has(gpu.bus)) return 'dmem';
  if (mps) return 'mps';
  return gpu.mig >= 0 ? 'mig' : 'none';
}

/** What MPS is told of a job, where it runs and the user has not said otherwise; it counts in MiB, and for each process by itself. */
export function mpsEnvironment(devices: readonly Device[], { budgetBytes, env }: JobLimits): Record<string, string> {
  const runs = devices.some((device) => device.first_party_limit === 'mps');
  if (!runs || budgetBytes === null || env.CUDA_MPS_PINNED_DEVICE_MEM_LIMIT !== undefined) return {};
  const limit = `${Math.ceil(budgetBytes / 1024 ** 2)}M`;
  return { CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: devices.map((_, ordinal) => `${ordinal}=${limit}`).join(',') };
}
