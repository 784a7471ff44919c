import { execFile } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { compilerCache } from '../../scripts/setup/ccache.mjs';
import { which } from '../../scripts/setup/system.mjs';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..', '..');

/** What sanitizers instrument takes a third less to compile than optimised fully, and says as much. */
const INSTRUMENTED = ['-DCMAKE_BUILD_TYPE=RelWithDebInfo', '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG'];

const KINDS = {
  /** As it is shipped, with the tests' own programs. */
  plain: { folder: 'build-tests', options: ['-DCMAKE_BUILD_TYPE=Release'] },
  address: {
    folder: 'build-asan',
    options: [...INSTRUMENTED, '-DOOMTUNE_SANITIZE=address,undefined'],
  },
  thread: { folder: 'build-tsan', options: [...INSTRUMENTED, '-DOOMTUNE_SANITIZE=thread'] },
  /** For 64-bit Arm; what comes of it runs under an emulator. */
  aarch64: {
    folder: 'build-aarch64',
    options: ['-DCMAKE_BUILD_TYPE=Release', '-DCMAKE_TOOLCHAIN_FILE=native/test/aarch64.cmake'],
  },
};

const ARM = { compiler: 'aarch64-linux-gnu-g++', emulator: 'qemu-aarch64-static', libraries: '/usr/aarch64-linux-gnu' };

/** How a program for 64-bit Arm is started here; null, with what is missing printed, where it cannot be. */
export function armEmulator(): string[] | null {
  const missing = [ARM.compiler, ARM.emulator].filter((name) => which(name) === null);
  if (missing.length === 0) return [ARM.emulator, '-L', ARM.libraries];
  console.warn(
    `Skipped: what runs on aarch64, as ${missing.join(' and ')} cannot be found (apt-get install g++-aarch64-linux-gnu qemu-user-static).`,
  );
  return null;
}

/** A build under sanitizers takes a minute. */
const CACHED = compilerCache();

/** Is googletest installed? Asked as CMake asks. */
export const hasGoogletest = ['/usr/include', '/usr/local/include'].some((folder) =>
  existsSync(join(folder, 'gtest', 'gtest.h')),
);

/**
 * Builds `targets` (nothing, when they are up to date) and returns the folder that they are in. Test files that build at
 * the same time wait for each other.
 */
export async function buildNative(kind: keyof typeof KINDS, targets: string[]): Promise<string> {
  const { folder, options } = KINDS[kind];
  const build = join(ROOT, folder);
  mkdirSync(build, { recursive: true });
  const locked = (command: string[]) =>
    run('flock', [join(build, '.lock'), ...command], {
      cwd: ROOT,
      env: { ...process.env, ...CACHED },
      maxBuffer: 64 * 1024 ** 2,
    });
  await locked(['cmake', '-S', '.', '-B', build, '-DOOMTUNE_TESTS=ON', ...options]);
  await locked(['cmake', '--build', build, '--parallel', '2', '--target', ...targets]);
  return join(build, options.includes('-DCMAKE_BUILD_TYPE=Release') ? 'Release' : 'RelWithDebInfo');
}

/** Runs a program that is its own judge: throws with all that it printed if it fails. */
export async function passes(file: string, args: string[] = [], env: Record<string, string> = {}): Promise<string> {
  try {
    const { stdout } = await run(file, args, {
      env: { PATH: process.env.PATH ?? '', ...env },
      maxBuffer: 64 * 1024 ** 2,
    });
    return stdout;
  } catch (error) {
    const { stdout, stderr, message } = error as { stdout?: string; stderr?: string; message: string };
    throw new Error(`${message}\n${stdout ?? ''}\n${stderr ?? ''}`);
  }
}
