import { accessSync, constants, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import prebuilds from 'pkg-prebuilds';
import { OomtuneError } from '../common/errors.js';
import { PACKAGE_ROOT } from '../common/home.js';
import type { LedgerReading } from '../contract/launch.js';
import type { DeviceAddon } from '../devices/kind.js';

interface NativeLedger {
  devices: (Omit<LedgerReading['devices'][number], 'measured_by'> & {
    refused: number;
    measured: 'process' | 'device' | null;
    kinds: Record<string, number>;
  })[];
  refusals: (Omit<LedgerReading['refusals'][number], 'at' | 'budget_bytes'> & {
    tid: number;
    budget_bytes: number | null;
    at_ms: number;
  })[];
  refused: number;
  processes: number;
  /** Slots ever taken; 0: none of our libraries ran in the job. */
  claims: number;
  blind: number;
}

/** What native/addon exports. It does not check arguments. */
export interface Addon extends DeviceAddon {
  version: string;
  readLedger(path: string): NativeLedger | null;
  /** A descriptor with the kernel's lock on a file or folder; null: somebody else has it. */
  holdLock(path: string): number | null;
  spawnSupervisor(executable: string, folder: string, inherit: boolean): Promise<number>;
  waitForProcess(pid: number, startTime: number): Promise<void>;
  /** Who connected a unix socket, as the kernel noted it then. */
  peerCredentials(fd: number): { pid: number; uid: number; gid: number };
  /** Null: there is no such account. */
  accountOf(uid: number): { name: string; gid: number; home: string; shell: string; groups: number[] } | null;
  /** What waits in a pipe or stream socket, which stays there; `ended`: nobody writes any more. */
  peekStream(fd: number): { bytes: Buffer; ended: boolean };
  /** The group's number; null: there is no such group. */
  groupNamed(name: string): number | null;
}

export interface Native {
  addon: Addon;
  /** Holds the addon, the supervisor and the preloads. */
  folder: string;
  supervisor: string;
}

const require = createRequire(import.meta.url);
let loaded: Native | undefined;

/** pkg-prebuilds finds a prebuilt addon by this. Every supported Node has Node-API 8. */
const PREBUILT = { name: 'oomtune', napi_versions: [8] };
const PREBUILT_FILE = 'node-napi-v8.node';

/** Documented by the package, but missing in its types. */
type Resolve = (root: string, options: typeof PREBUILT, prebuiltOnly: boolean, mustBeThere: boolean) => string | null;
const { resolve } = prebuilds as unknown as { resolve: Resolve };

/** The folder of prebuilt parts for this kind of machine, which may be missing. */
export function prebuiltFolder(root = PACKAGE_ROOT): string {
  const found = resolve(root, PREBUILT, true, false);
  return found ? dirname(found) : join(root, 'prebuilds', `oomtune-${process.platform}-${process.arch}`);
}

/** Folders to try, in this order: what was built here certainly fits. */
function nativeFolders(env: NodeJS.ProcessEnv = process.env): string[] {
  const own = env.OOMTUNE_NATIVE;
  return own ? [own] : [join(PACKAGE_ROOT, 'build', 'Release'), prebuiltFolder()];
}

/** Loads the addon and finds the executables beside it. Throws OOMTUNE_NATIVE_MISSING with all folders tried. */
export function loadNative(folders = nativeFolders()): Native {
  if (loaded && folders.includes(loaded.folder)) return loaded;
  const tried: string[] = [];
  for (const folder of folders) {
    try {
      const supervisor = join(folder, 'oomtune-supervisor');
      const prebuilt = join(folder, PREBUILT_FILE);
      const addon = require(existsSync(prebuilt) ? prebuilt : join(folder, 'oomtune.node')) as Addon;
      accessSync(supervisor, constants.X_OK);
      loaded = { addon, folder, supervisor };
      return loaded;
    } catch (error) {
      const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
      tried.push(`${folder} (${reason})`);
    }
  }
  throw new OomtuneError(
    'OOMTUNE_NATIVE_MISSING',
    `The native runtime could not be loaded. Tried: ${tried.join('; ')}.`,
    process.platform === 'linux'
      ? 'Run `npm rebuild oomtune` where it is installed, or `npm run build:native` in a checkout; both need cmake and a C++ compiler. OOMTUNE_NATIVE names another folder.'
      : 'oomtune runs jobs on Linux only.',
  );
}
