#!/usr/bin/env node
/**
 * Makes the wheel of a release from npm's tarball of it: the Python package, the program with its native part, and a
 * launcher. `node scripts/package/wheel.mjs TARBALL FOLDER` prints the wheel's path.
 */
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findWheelBuilder } from '../setup/python.mjs';
import { Missing, ROOT, run } from '../setup/say.mjs';
import { withErrors } from '../setup.mjs';

/** What only an installation by npm needs: it builds where no prebuilt part fits, whereas pip takes no wheel there. */
const NOT_CARRIED = ['native', 'CMakeLists.txt', 'scripts', 'README.md', 'CHANGELOG.md'];
/** Libraries that the bundle reads from beside itself. */
const LIBRARIES = ['uplot', 'yaml'];
/** The newest glibc that a prebuilt part asks for (test/native/floor.test.ts holds it). */
const GLIBC = '2_28';
const MACHINES = { x64: 'x86_64', arm64: 'aarch64' };

/** The tag of the machines that the prebuilt parts of this one run on. */
function platformTag() {
  const machine = MACHINES[process.arch];
  const glibc = process.report.getReport().header.glibcVersionRuntime;
  if (process.platform !== 'linux' || machine === undefined || glibc === undefined) {
    throw new Missing(
      `There is no wheel for ${process.platform} on ${process.arch}${glibc ? '' : ' without glibc'}.`,
      'Make it on Linux with glibc, x64 or arm64; elsewhere npm installs oomtune.',
    );
  }
  return `manylinux_${GLIBC}_${machine}`;
}

/** Returns the wheel's path. */
export function makeWheel(tarball, folder) {
  const python = findWheelBuilder();
  if (python === null) throw new Missing('No Python here can make a wheel.', 'Install pip, setuptools and wheel.');
  const work = mkdtempSync(join(tmpdir(), 'oomtune-wheel-'));
  try {
    run(['tar', '-xzf', resolve(tarball), '-C', work]);
    const program = join(work, 'package');
    const source = join(work, 'python');
    cpSync(join(program, 'python'), source, { recursive: true });
    cpSync(join(program, 'LICENSE'), join(source, 'LICENSE'));
    for (const name of NOT_CARRIED) rmSync(join(program, name), { recursive: true, force: true });
    for (const name of LIBRARIES) layLibrary(name, join(program, 'node_modules', name));
    chmodSync(join(program, 'bin', 'oomtune.js'), 0o755);
    cpSync(program, join(source, 'oomtune', 'program'), { recursive: true });
    const offline = ['--no-index', '--no-deps', '--no-build-isolation', '--disable-pip-version-check', '--quiet'];
    const tag = `--config-settings=--build-option=--plat-name=${platformTag()}`;
    const made = join(work, 'made');
    mkdirSync(made);
    run([python, '-m', 'pip', 'wheel', ...offline, tag, '--wheel-dir', made, source]);
    const [wheel] = readdirSync(made);
    mkdirSync(folder, { recursive: true });
    cpSync(join(made, wheel), join(folder, wheel));
    return join(folder, wheel);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function layLibrary(name, target) {
  const source = join(ROOT, 'node_modules', name);
  const left = (path) => basename(path) !== 'browser' && !/\.d\.ts$|\.map$/.test(path);
  cpSync(source, target, { recursive: true, filter: left });
  if (!existsSync(join(target, 'LICENSE'))) throw new Error(`${name} has no LICENSE to hand on.`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await withErrors(() => {
    const [tarball, folder] = process.argv.slice(2);
    if (folder === undefined) throw new Missing('A tarball and a folder are needed.', 'wheel.mjs TARBALL FOLDER');
    process.stdout.write(`${makeWheel(tarball, folder)}\n`);
  });
}
