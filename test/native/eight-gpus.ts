import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { loadNative } from '../../src/runtime/native.js';
import { buildNative } from './build.js';

/** Makes a native runtime in `folder`, for OOMTUNE_NATIVE, that finds eight GPUs, all pretended. Needs a C compiler. */
export async function eightGpus(folder: string): Promise<string> {
  const built = await buildNative('plain', ['oomtune_fake_gpus']);
  const real = loadNative().folder;
  mkdirSync(folder, { mode: 0o755 });
  cpSync(real, folder, { recursive: true, dereference: true });
  cpSync(join(folder, 'oomtune.node'), join(folder, 'real.node'));
  cpSync(join(built, 'fake-gpus', 'libnvidia-ml.so.1'), join(folder, 'libnvidia-ml.so.1'));
  const source = join(import.meta.dirname, 'fake-addon.c');
  execFileSync('cc', ['-shared', '-fPIC', '-o', join(folder, 'oomtune.node'), source, '-ldl']);
  chmodSync(folder, 0o755);
  return folder;
}
