import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { DeviceKind, Preload } from '../kind.js';
import { prepend } from '../path-list.js';
import { hostDevice } from './memory.js';

const LIBRARY = 'liboomtune_host.so';

/** Host memory, counted where the C library allocates it. */
export const CPU: DeviceKind = {
  name: 'cpu',
  noun: 'host memory',
  // the rest of the machine must live on
  defaultShare: 0.75,
  cachingAllocator: false,
  driverVersion: () => null,
  list: async () => ({ devices: [hostDevice()], absent: false, trouble: null }),
  preload(environment: Readonly<Record<string, string>>, nativeFolder: string): Preload | null {
    const library = join(nativeFolder, LIBRARY);
    if (!existsSync(library)) return null;
    return { env: { LD_PRELOAD: prepend(environment.LD_PRELOAD, library, /[:\s]/) }, standIn: null };
  },
  show: () => ({}),
};
