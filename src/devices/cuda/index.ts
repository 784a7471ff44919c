import { execFileSync } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { systemText } from '../../common/regular-file.js';
import type { Device } from '../../contract/launch.js';
import {
  append,
  type DeviceAddon,
  type DeviceKind,
  type JobLimits,
  type Listing,
  type Preload,
  prepend,
} from '../kind.js';
import { listGpus } from './gpus.js';
import { mpsEnvironment } from './limits.js';

/** A folder for the job's LD_LIBRARY_PATH: libcuda.so.1 and what belongs to it. */
const FOLDER = 'cuda';

/** NVIDIA's GPUs, whose driver a library of ours stands in for and counts. */
export const CUDA: DeviceKind = {
  name: 'cuda',
  noun: 'GPU',
  defaultShare: 1,
  cachingAllocator: true,
  driver: {
    name: 'NVIDIA driver',
    tool: 'nvidia-smi',
    version: () => /Module.*?\s(\d+\.\d+(?:\.\d+)?)\s/.exec(systemText('/proc/driver/nvidia/version'))?.[1] ?? null,
  },
  async list(addon: DeviceAddon): Promise<Listing> {
    const inventory = await addon.inventory();
    return {
      devices: listGpus(inventory, process.env.CUDA_VISIBLE_DEVICES),
      absent: !inventory.found && inventory.error === '',
      trouble: inventory.error ? `The NVIDIA driver does not answer: ${inventory.error}.` : null,
    };
  },
  preload(environment: Readonly<Record<string, string>>, nativeFolder: string): Preload | null {
    const folder = join(nativeFolder, FOLDER);
    const standIn = join(folder, LIBRARY);
    const driver = existsSync(standIn) ? findDriver(environment, folder) : null;
    if (driver === null) return null;
    const env = {
      // Last, in the driver's own place: the user's preloads may interpose it, and find it next.
      LD_PRELOAD: append(environment.LD_PRELOAD, standIn),
      LD_LIBRARY_PATH: prepend(environment.LD_LIBRARY_PATH, folder),
      OOMTUNE_CUDA_DRIVER: driver,
    };
    return { env, standIn: realpathSync(standIn) };
  },
  show(devices: readonly Device[], job: JobLimits): Record<string, string> {
    // By uuid, as CUDA and NVML number GPUs differently; empty where the job has no GPU.
    return { ...mpsEnvironment(devices, job), CUDA_VISIBLE_DEVICES: devices.map(({ uuid }) => uuid).join(',') };
  },
};

const LIBRARY = 'libcuda.so.1';

/** Where distributions, containers and WSL put drivers, if the loader's cache names none. */
const DRIVER_FOLDERS = [
  `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu`,
  '/usr/lib64',
  '/usr/lib',
  '/usr/local/nvidia/lib64',
  '/usr/lib/wsl/lib',
];

function cachedDriver(): string | undefined {
  for (const program of ['/sbin/ldconfig', '/usr/sbin/ldconfig']) {
    try {
      const lines = execFileSync(program, ['-p'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split(
        '\n',
      );
      const wanted = process.arch === 'arm64' ? 'AArch64' : 'x86-64';
      const line = lines.find((text) => text.trim().startsWith(`${LIBRARY} `) && text.includes(wanted));
      if (line) return line.split('=> ')[1]?.trim();
    } catch {
      // not there: try the folders below
    }
  }
  return undefined;
}

/** The driver that the job would load without us; null: none. */
export function findDriver(env: Readonly<Record<string, string>>, ours: string): string | null {
  if (env.OOMTUNE_CUDA_DRIVER) return env.OOMTUNE_CUDA_DRIVER;
  const own = (env.LD_LIBRARY_PATH ?? '').split(':').filter((folder) => folder && folder !== ours);
  const files = [...own.map((folder) => join(folder, LIBRARY)), cachedDriver()];
  files.push(...DRIVER_FOLDERS.map((folder) => join(folder, LIBRARY)));
  const found = files.find((file) => file !== undefined && existsSync(file));
  return found ? realpathSync(found) : null;
}
