import { accessSync, constants, existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { findPython, findWheelBuilder } from './python.mjs';
import { Missing, output, run, say } from './say.mjs';

/** Where `name` is on PATH, or in the folders that a plain user's PATH may leave out. */
export function which(name) {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/bin', '/usr/local/bin', '/usr/sbin', '/sbin'];
  for (const folder of folders) {
    if (folder === '') continue;
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {}
  }
  return null;
}

/** What the program needs of the system: how to tell that it is there, and the Debian packages that bring it. */
function needs({ tests }) {
  const needed = [
    { what: 'redis-server', there: () => which('redis-server') ?? which('valkey-server'), packages: ['redis-server'] },
    { what: 'redis-cli', there: () => which('redis-cli') ?? which('valkey-cli'), packages: ['redis-tools'] },
    { what: 'cmake', there: () => which('cmake'), packages: ['cmake'] },
    { what: 'a C++ compiler', there: () => which('c++') ?? which('g++') ?? which('clang++'), packages: ['g++'] },
    { what: 'make', there: () => which('make') ?? which('ninja'), packages: ['make'] },
    {
      what: 'a Python with torch',
      there: () => findPython()?.path,
      // torch on the generic BLAS is many times slower; the threaded OpenBLAS comes with it
      packages: ['python3-torch', 'libopenblas0-pthread'],
    },
  ];
  if (tests) {
    const gtest = () => existsSync('/usr/include/gtest/gtest.h') || existsSync('/usr/local/include/gtest/gtest.h');
    needed.push({ what: 'googletest', there: gtest, packages: ['libgtest-dev'] });
    // completion is tested in the shells themselves
    for (const shell of ['zsh', 'fish']) needed.push({ what: shell, there: () => which(shell), packages: [shell] });
    needed.push({
      what: 'pip, setuptools and wheel',
      there: findWheelBuilder,
      packages: ['python3-pip', 'python3-setuptools', 'python3-wheel'],
    });
    // a client that is not ours reads what was recorded
    const client = () => output(['/usr/bin/python3', '-c', 'import redis']) !== null;
    needed.push({ what: "Redis's client for Python", there: client, packages: ['python3-redis'] });
    // 3 MB of packages; nothing of it is started but by the test that follows the guide
    needed.push({
      what: 'slurm',
      there: () => ['munged', 'slurmctld', 'slurmd', 'sbatch'].every((name) => which(name) !== null),
      packages: ['munge', 'slurmctld', 'slurmd', 'slurm-client'],
    });
    // the native tests are compiled four times over, and a clean checkout has nothing of what the one before compiled
    needed.push({ what: 'ccache', there: () => which('ccache'), packages: ['ccache'] });
    needed.push({ what: 'jq', there: () => which('jq'), packages: ['jq'] }); // a guide reads a report with it
    needed.push({
      what: 'chromium',
      there: () => which('chromium') ?? which('chromium-browser'),
      packages: ['chromium'],
    });
  }
  return needed;
}

/** Installs what is missing when it may, else says the one command. */
export function ensureSystem(options) {
  const missing = needs(options).filter((need) => !need.there());
  if (missing.length === 0) return;
  const packages = missing.flatMap((need) => need.packages);
  const names = missing.map((need) => need.what).join(', ');
  say(`missing: ${names}`);
  const command = `apt-get update && apt-get install -y --no-install-recommends ${packages.join(' ')}`;
  if (which('apt-get') === null) {
    throw new Missing(
      `Missing: ${names}.`,
      'Install them with the package manager of this system, then run this again.',
    );
  }
  const prefix = rootPrefix();
  if (prefix === null) throw new Missing(`Missing: ${names}.`, `Run: sudo sh -c '${command}'`);
  const quiet = { DEBIAN_FRONTEND: 'noninteractive' };
  const remedy = `Run it by hand: ${prefix.length > 0 ? 'sudo ' : ''}sh -c '${command}'`;
  run([...prefix, 'apt-get', 'update', '-qq'], { env: quiet, remedy });
  run([...prefix, 'apt-get', 'install', '-y', '-qq', '--no-install-recommends', ...packages], { env: quiet, remedy });
  const still = missing.filter((need) => !need.there()).map((need) => need.what);
  if (still.length > 0) throw new Missing(`Still missing after the installation: ${still.join(', ')}.`, remedy);
}

/** `[]` as root, `['sudo', …]` where sudo asks for nothing, else null. */
function rootPrefix() {
  if (process.getuid?.() === 0) return [];
  if (which('sudo') !== null && output(['sudo', '-n', 'true'], { timeout: 5000 }) !== null) {
    return ['sudo', '-n', '--preserve-env=DEBIAN_FRONTEND'];
  }
  return null;
}
