#!/usr/bin/env node
/** Before `npm pack`: everything compiled, and the native runtime of this kind of machine laid into prebuilds/. */
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ensureNative, ensureTypeScript } from '../setup/build.mjs';
import { ROOT, run } from '../setup/say.mjs';
import { withErrors } from '../setup.mjs';

const RELEASE = join(ROOT, 'build', 'Release');

/** What stands beside the addon: the loader looks for all of it in the addon's own folder. */
const BESIDE = ['oomtune-supervisor', 'liboomtune_host.so', 'cuda/libcuda.so.1', 'cuda/libnvidia-ml.so.1'];

/** The compiler leaves what it made of sources that are gone. */
function dropStale() {
  for (const file of readdirSync(join(ROOT, 'dist'), { recursive: true, encoding: 'utf8' })) {
    const source = file.replace(/\.(js|d\.ts)(\.map)?$/, '.ts');
    if (source !== file && !existsSync(join(ROOT, 'src', source))) rmSync(join(ROOT, 'dist', file));
  }
}

/** pkg-prebuilds names the folder and the addon; musl has a folder of its own, glibc's has no mark. */
async function layPrebuilds() {
  rmSync(join(ROOT, 'prebuilds'), { recursive: true, force: true });
  const copy = join(ROOT, 'node_modules', 'pkg-prebuilds', 'bin', 'copy.mjs');
  const libc = process.report.getReport().header.glibcVersionRuntime ? 'glibc' : 'musl';
  const names = ['--name', 'oomtune', '--napi_version', '8', '--libc', libc];
  run([process.execPath, copy, '--baseDir', join('build', 'Release'), '--source', 'oomtune.node', '--strip', ...names]);
  const { prebuiltFolder } = await import('../../dist/runtime/native.js');
  for (const file of BESIDE) {
    const target = join(prebuiltFolder(), file);
    mkdirSync(join(target, '..'), { recursive: true });
    copyFileSync(join(RELEASE, file), target); // keeps the supervisor executable
  }
}

await withErrors(async () => {
  ensureTypeScript();
  dropStale();
  ensureNative();
  await layPrebuilds();
});
