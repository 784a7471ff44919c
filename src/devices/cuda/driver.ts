import { execFileSync } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { join } from 'node:path';

export const LIBRARY = 'libcuda.so.1';

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
      // not there: the folders below are looked through
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
