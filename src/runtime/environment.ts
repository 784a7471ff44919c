import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { homePath } from '../common/home.js';
import { temporaryFolder } from '../common/private-folder.js';

const HOST_LIBRARY = 'liboomtune_host.so';
/** A folder of its own, as it goes onto the job's LD_LIBRARY_PATH: holds libcuda.so.1 and what stands in beside it. */
const CUDA_FOLDER = 'cuda';
const CUDA_LIBRARY = 'libcuda.so.1';

/** Where drivers are put by distributions, containers and WSL, when the loader's cache does not name one. */
const DRIVER_FOLDERS = [
  `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu`,
  '/usr/lib64',
  '/usr/lib',
  '/usr/local/nvidia/lib64',
  '/usr/lib/wsl/lib',
];

/** Puts ours in front of what the user has set, and never twice. */
function prepend(value: string | undefined, ours: string, separators = /[:;]/): string {
  const rest = (value ?? '').split(separators).filter((part) => part && part !== ours);
  return [ours, ...rest].join(':');
}

/** Puts ours behind what the user has set, and never twice. */
function append(value: string | undefined, ours: string): string {
  const rest = (value ?? '').split(/[:\s]/).filter((part) => part && part !== ours);
  return [...rest, ours].join(':');
}

function cachedDriver(): string | undefined {
  for (const program of ['/sbin/ldconfig', '/usr/sbin/ldconfig']) {
    try {
      const lines = execFileSync(program, ['-p'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split(
        '\n',
      );
      const wanted = process.arch === 'arm64' ? 'AArch64' : 'x86-64';
      const line = lines.find((text) => text.trim().startsWith(`${CUDA_LIBRARY} `) && text.includes(wanted));
      if (line) return line.split('=> ')[1]?.trim();
    } catch {
      // not there: the folders below are looked through
    }
  }
  return undefined;
}

/** The real driver, as the job would have found it without us; null: there is none. */
export function cudaDriver(env: Record<string, string>, ours: string): string | null {
  if (env.OOMTUNE_CUDA_DRIVER) return env.OOMTUNE_CUDA_DRIVER;
  const own = (env.LD_LIBRARY_PATH ?? '').split(':').filter((folder) => folder && folder !== ours);
  const files = [...own.map((folder) => join(folder, CUDA_LIBRARY)), cachedDriver()];
  files.push(...DRIVER_FOLDERS.map((folder) => join(folder, CUDA_LIBRARY)));
  const found = files.find((file) => file !== undefined && existsSync(file));
  return found ? realpathSync(found) : null;
}

/**
 * A path to the same folder that LD_PRELOAD and LD_LIBRARY_PATH can carry: they are split at blanks and colons. Where
 * the package stands in such a folder, a link in a private one leads there. Throws OOMTUNE_HOME_UNUSABLE where there can be
 * none: without the libraries the job would have no budget.
 */
export function preloadable(folder: string): string {
  if (!/[\s:;]/.test(folder)) return folder;
  const link = join(
    temporaryFolder(homePath()),
    `native-${createHash('sha256').update(folder).digest('hex').slice(0, 8)}`,
  );
  if (!existsSync(link)) {
    rmSync(link, { force: true });
    symlinkSync(folder, link);
  }
  return link;
}

export interface Preload {
  /** To be added to the job's environment. */
  env: Record<string, string>;
  /** The library that CUDA calls go through; null: they go to the driver alone. */
  standIn: string | null;
}

/**
 * What the job's environment needs so that our libraries are loaded into it: LD_PRELOAD (the allocator's before the user's
 * own, which stay, the driver's behind them), and for CUDA the stand-in's folder first on LD_LIBRARY_PATH and the path of the
 * real driver. A library that is not built is left out: the job then runs without a ledger for that device.
 */
export function preloadEnvironment(devices: string[], env: Record<string, string>, nativeFolder: string): Preload {
  const preload: Preload = { env: {}, standIn: null };
  const base = preloadable(nativeFolder);
  const host = join(base, HOST_LIBRARY);
  if (devices.includes('cpu') && existsSync(host)) preload.env.LD_PRELOAD = prepend(env.LD_PRELOAD, host, /[:\s]/);
  const folder = join(base, CUDA_FOLDER);
  const standIn = join(folder, CUDA_LIBRARY);
  const driver = devices.some((id) => id.startsWith('cuda:')) && existsSync(standIn) ? cudaDriver(env, folder) : null;
  if (driver) {
    // Last, where the driver itself would stand: what the user preloads may interpose it, and finds it as the next one.
    preload.env.LD_PRELOAD = append(preload.env.LD_PRELOAD ?? env.LD_PRELOAD, standIn);
    preload.env.LD_LIBRARY_PATH = prepend(env.LD_LIBRARY_PATH, folder);
    preload.env.OOMTUNE_CUDA_DRIVER = driver;
    preload.standIn = realpathSync(standIn);
  }
  return preload;
}
