import { existsSync, mkdirSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { compilerCache } from './ccache.mjs';
import { ROOT, run, say } from './say.mjs';

const at = (...parts) => join(ROOT, ...parts);

/** Time of the newest file below the paths, in milliseconds; 0 if there is none. */
function newest(...paths) {
  let latest = 0;
  for (const path of paths) {
    const stat = statSync(path, { throwIfNoEntry: false });
    if (!stat) continue;
    if (!stat.isDirectory()) latest = Math.max(latest, stat.mtimeMs);
    else for (const name of readdirSync(path)) latest = Math.max(latest, newest(join(path, name)));
  }
  return latest;
}

/** Stamps tell what was built when: the outputs' own times do not (tsc leaves an unchanged file alone). */
const stamp = (name) => at('build', `.${name}-done`);

function fresh(name, output, ...sources) {
  const done = statSync(stamp(name), { throwIfNoEntry: false });
  return existsSync(output) && done !== undefined && done.mtimeMs >= newest(...sources);
}

function mark(name, when) {
  mkdirSync(at('build'), { recursive: true });
  writeFileSync(stamp(name), '');
  utimesSync(stamp(name), when, when);
}

/** Each step is left out when its output is newer than everything that it is made from. */
export function ensurePackages() {
  const installed = at('node_modules', '.package-lock.json');
  if (existsSync(installed) && newest(installed) >= newest(at('package-lock.json'))) return;
  say('installing node_modules');
  run(['npm', 'ci', '--no-audit', '--no-fund'], {
    remedy: 'npm needs its registry; check the network, then run this again.',
  });
}

export function ensureTypeScript() {
  const sources = ['src', 'config', join('scripts', 'setup'), 'tsconfig.json', 'package-lock.json'].map((name) =>
    at(name),
  );
  if (fresh('tsc', at('dist', 'program', 'main.js'), ...sources)) return;
  say('compiling TypeScript');
  const started = new Date();
  run(['npm', 'run', '--silent', 'build:ts']);
  mark('tsc', started);
}

/** The native tests build their own, with sanitizers and without, beside it. */
export function ensureNative() {
  const sources = ['addon', 'core', 'supervisor', 'preload'].map((room) => at('native', room));
  if (fresh('native', at('build', 'Release', 'oomtune.node'), ...sources, at('CMakeLists.txt'))) return;
  say('building the native runtime');
  const started = new Date();
  run([process.execPath, at('node_modules', 'cmake-js', 'bin', 'cmake-js'), 'compile'], {
    remedy: 'The compiler above says why; CONTRIBUTING.md lists what the native part needs.',
    env: compilerCache(),
  });
  mark('native', started);
}
