import { existsSync } from 'node:fs';
import { cpus, hostname, totalmem } from 'node:os';
import { join } from 'node:path';
import { systemText } from '../../common/regular-file.js';
import { HOST } from '../../contract/device-id.js';
import type { Device } from '../../contract/launch.js';
import { type DeviceKind, type Preload, prepend } from '../kind.js';

const LIBRARY = 'liboomtune_host.so';

/** Host memory, counted where the C library allocates it. */
export const CPU: DeviceKind = {
  name: 'cpu',
  noun: 'host memory',
  // the rest of the machine must live on
  defaultShare: 0.75,
  cachingAllocator: false,
  driver: null,
  list: async () => ({ devices: [hostDevice()], absent: false, trouble: null }),
  preload(environment: Readonly<Record<string, string>>, nativeFolder: string): Preload | null {
    const library = join(nativeFolder, LIBRARY);
    if (!existsSync(library)) return null;
    const env = {
      LD_PRELOAD: prepend(environment.LD_PRELOAD, library, /[:\s]/),
      // Else MKL keeps the workspaces of each shape that it has met: an epoch's last batch, smaller than the rest, would leave less
      // to those that follow, and what fits would not rise and fall with the size.
      MKL_DISABLE_FAST_MM: environment.MKL_DISABLE_FAST_MM ?? '1',
    };
    return { env, standIn: null };
  },
  show: () => ({}),
};

function figure(file: string): number | null {
  if (!existsSync(file)) return null; // usual, and far cheaper than an exception
  const value = systemText(file).trim();
  return /^\d+$/.test(value) ? Number(value) : null;
}

interface Group {
  limit: number;
  used: number;
}

/** The tightest memory limit of the cgroups that this process is in (v2 and v1); null: none is set. */
export function memoryGroup(root = '/sys/fs/cgroup', membership = systemText('/proc/self/cgroup')): Group | null {
  let tightest: Group | null = null;
  for (const line of membership.split('\n')) {
    const [, controllers, path] = line.split(':');
    if (path === undefined || controllers === undefined) continue;
    const unified = controllers === '';
    if (!unified && !controllers.split(',').includes('memory')) continue;
    const names = unified ? ['memory.max', 'memory.current'] : ['memory.limit_in_bytes', 'memory.usage_in_bytes'];
    const bases = unified ? [root, `${root}/unified`] : [`${root}/memory`];
    // Any ancestor may set the limit; inside a container the path may be the host's, and only the root exists.
    const parts = path.split('/').filter(Boolean);
    for (const base of bases) {
      for (let depth = parts.length; depth >= 0; depth -= 1) {
        const folder = [base, ...parts.slice(0, depth)].join('/');
        const limit = figure(`${folder}/${names[0]}`);
        // v1 writes a number near 2^63 for "none".
        if (limit === null || limit > 2 ** 60 || (tightest && limit >= tightest.limit)) continue;
        const used = figure(`${folder}/${names[1]}`);
        if (used !== null) tightest = { limit, used };
      }
    }
  }
  return tightest;
}

function memoryInfo(): { total: number; available: number } {
  const info = systemText('/proc/meminfo');
  const kib = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(info)?.[1] ?? Number.NaN) * 1024;
  const total = kib('MemTotal');
  const available = kib('MemAvailable');
  return Number.isFinite(total) && Number.isFinite(available)
    ? { total, available }
    : { total: totalmem(), available: 0 };
}

/** A daemon may start many jobs a second, and looks at the memory for each. */
const FRESH_MS = 250;

let latest: { device: Device; at: number } | null = null;
let identity: Pick<Device, 'uuid' | 'model'> | null = null;

/** The constant part, read once. */
function identify(): Pick<Device, 'uuid' | 'model'> {
  const model = cpus()[0]?.model.trim();
  return {
    uuid: `cpu:${systemText('/etc/machine-id').trim() || hostname()}`,
    model: model && model !== 'unknown' ? model : `${process.arch} CPU`,
  };
}

/** Host memory as a device: the machine's, or its cgroup's part. At most FRESH_MS old. */
export function hostDevice(): Device {
  const now = Date.now();
  if (latest === null || Math.abs(now - latest.at) > FRESH_MS) latest = { device: readHost(), at: now };
  return { ...latest.device };
}

function readHost(): Device {
  const { total, available } = memoryInfo();
  const group = memoryGroup();
  const limited = group !== null && group.limit < total;
  identity ??= identify();
  return {
    id: HOST,
    ...identity,
    total_bytes: limited ? group.limit : total,
    used_bytes: limited ? group.used : total - available,
    utilisation_pct: null,
    temperature_c: null,
    power_w: null,
    processes: [],
    note: limited ? `The memory limit of the cgroup, not the machine's ${Math.round(total / 1024 ** 3)} GiB.` : null,
    fault: null,
    driver: null,
    bus: null,
    figures: 'device',
    first_party_limit: 'none',
  };
}
