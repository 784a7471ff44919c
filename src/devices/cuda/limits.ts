/** Limits on device memory that the driver or the kernel has, where they are available. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { systemText } from '../../common/regular-file.js';
import type { Device, FirstPartyLimit } from '../../contract/launch.js';
import { dmemRegions } from '../dmem.js';
import type { JobLimits, NativeGpu } from '../kind.js';

/** The limits that this machine offers. */
export interface Offers {
  /** An MPS control daemon answers to the programs that are started here. */
  mps: boolean;
  /** Regions of the kernel's dmem controller that a job's cgroup can be held to, by the PCI bus id of their device. */
  regions: Map<string, string>;
}

/** Whether an MPS control daemon works here, by its pid; in a container, where that means nothing, by its file. */
export function mpsRuns(env: NodeJS.ProcessEnv, proc = '/proc'): boolean {
  const folder = env.CUDA_MPS_PIPE_DIRECTORY || '/tmp/nvidia-mps';
  if (!statSync(join(folder, 'control'), { throwIfNoEntry: false })) return false;
  const pid = systemText(join(folder, 'nvidia-cuda-mps-control.pid')).trim();
  if (!/^\d+$/.test(pid)) return false;
  const name = systemText(join(proc, pid, 'comm')).trim();
  if (name !== '') return name.startsWith('nvidia-cuda-mps');
  return !inFirstNamespace(proc);
}

/** Whether we are in the kernel's first pid namespace (PROC_PID_INIT_INO), where the driver's pids are ours. */
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

/** The strictest limit on a job's budget; `mig` limits it to the size of the part. */
export function firstPartyLimit(gpu: NativeGpu, { mps, regions }: Offers): FirstPartyLimit {
  // A region covers a whole GPU, so it cannot limit a part of it.
  if (gpu.mig < 0 && regions.has(gpu.bus)) return 'dmem';
  if (mps) return 'mps';
  return gpu.mig >= 0 ? 'mig' : 'none';
}

/** MPS's limit for a job, in MiB for each process, unless the user has set one. */
export function mpsEnvironment(devices: readonly Device[], { budgetBytes, env }: JobLimits): Record<string, string> {
  const runs = devices.some((device) => device.first_party_limit === 'mps');
  if (!runs || budgetBytes === null || env.CUDA_MPS_PINNED_DEVICE_MEM_LIMIT !== undefined) return {};
  const limit = `${Math.ceil(budgetBytes / 1024 ** 2)}M`;
  return { CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: devices.map((_, ordinal) => `${ordinal}=${limit}`).join(',') };
}
