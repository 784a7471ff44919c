import { existsSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { append, type DeviceKind, type Preload, prepend } from '../kind.js';
import { findDriver, LIBRARY } from './driver.js';

/** A folder of its own, as it goes onto the job's LD_LIBRARY_PATH: holds libcuda.so.1 and what stands in beside it. */
const FOLDER = 'cuda';

/** NVIDIA's GPUs, counted by a library that stands in for the driver. */
export const CUDA = {
  name: 'cuda',
  host: false,
  noun: 'GPU',
  defaultShare: 1,
  cachingAllocator: true,
  preload(environment: Readonly<Record<string, string>>, nativeFolder: string): Preload | null {
    const folder = join(nativeFolder, FOLDER);
    const standIn = join(folder, LIBRARY);
    const driver = existsSync(standIn) ? findDriver(environment, folder) : null;
    if (driver === null) return null;
    const env = {
      // Last, where the driver itself would stand: what the user preloads may interpose it, and finds it as the next one.
      LD_PRELOAD: append(environment.LD_PRELOAD, standIn),
      LD_LIBRARY_PATH: prepend(environment.LD_LIBRARY_PATH, folder),
      OOMTUNE_CUDA_DRIVER: driver,
    };
    return { env, standIn: realpathSync(standIn) };
  },
} as const satisfies DeviceKind;
