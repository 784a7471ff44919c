#!/usr/bin/env node
/** Before `npm pack`: everything compiled, and the native runtime of this kind of machine laid into prebuilds/. */
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ensureNative, ensureTypeScript } from '../setup/build.mjs';
import { ROOT, run } from '../setup/say.mjs';
import { withErrors } from '../setup.mjs';

const RELEASE = join(ROOT, 'build', 'Release');

/** What stands beside the addon: the loader looks for all of it in the addon's own folder. */
const BESIDE = ['oomtune-supervisor', 'liboomtune_host.so', 'cuda/libcuda.so.1', 'cuda/libnvidia-ml.so.1'];

/** pkg-prebuilds names the folder and the addon; musl has a folder of its own, glibc's has no mark. */
async function layPrebuilds() {
  rmSync(join(ROOT, 'prebuilds'), { recursive: true, force: true });
  const copy = join(ROOT, 'node_modules', 'pkg-prebuilds', 'bin', 'copy.mjs');
  const libc = process.report.getReport().header.glibcVersionRuntime ? 'glibc' : 'musl';
  const names = ['--name', 'oomtune', '--napi_version', '8', '--libc', libc];
  run([process.execPath, copy, '--baseDir', join('build', 'Release'), '--source', 'oomtune.node', '--strip', ...names]);
  const { prebuiltFolder } = await import('../../dist/program/native.js');
  for (const file of BESIDE) {
    const target = join(prebuiltFolder(), file);
    mkdirSync(join(target, '..'), { recursive: true });
    copyFileSync(join(RELEASE, file), target); // keeps the supervisor executable
  }
}

await withErrors(async () => {
  ensureTypeScript();
  ensureNative();
  await layPrebuilds();
});
