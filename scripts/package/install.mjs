#!/usr/bin/env node
/**
 * When the package is installed: takes the prebuilt native runtime if it loads here, else builds it. Never fails: a package
 * manager would roll the whole installation back, whereas `oomtune doctor` can say what is missing, and how to get it.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const say = (text) => process.stderr.write(`oomtune: ${text}\n`);

/** Being there is not enough: an older libc has to refuse it here rather than at the first job. */
async function prebuiltLoads() {
  const { loadNative, prebuiltFolder } = await import('../../dist/program/native.js');
  try {
    loadNative([prebuiltFolder()]);
    return true;
  } catch (error) {
    say(`the prebuilt native runtime does not fit here. ${error.message}`);
    return false;
  }
}

/** cmake-js brings Node's headers with it (node-api-headers), so this needs a compiler and cmake, but no network. */
function build() {
  const cmakeJs = join(dirname(createRequire(import.meta.url).resolve('cmake-js/package.json')), 'bin', 'cmake-js');
  const argv = [cmakeJs, 'rebuild', '--directory', ROOT];
  const done = spawnSync(process.execPath, argv, { cwd: ROOT, stdio: ['ignore', 2, 2] });
  if (done.status !== 0) {
    say('the native runtime could not be built. Install cmake and a C++ compiler, then run: npm rebuild oomtune');
  }
}

async function install() {
  if (existsSync(join(ROOT, 'src'))) return; // a checkout, which `npm run setup` builds
  if (process.platform !== 'linux') return say('jobs can be run on Linux only; nothing was built.');
  if (process.env.npm_config_build_from_source || !(await prebuiltLoads())) build();
}

await install().catch((error) => say(`the native runtime is not there: ${error.message}`));
