import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { output, say } from './say.mjs';
import { which } from './system.mjs';
import { ensureUv } from './uv.mjs';

/** Outside the checkout, as a fresh clone is to find it again. */
export const cache = () =>
  process.env.OOMTUNE_TEST_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'oomtune-tests');

/** Oldest and newest minor version of Python 3 that the frameworks' pinned versions have wheels for; the others are put beside them. */
const OLDEST = 11;
const NEWEST = 14;

/**
 * The interpreter of an environment as of `ensureVenv`; null where it cannot be had, which is said aloud: `tests` do not run then.
 */
export function ensureTestVenv({ tests, oldest = OLDEST, newest = NEWEST, ...wanted }) {
  const base = findBase(oldest, newest);
  const versions = oldest === newest ? `3.${oldest}` : `3.${oldest} to 3.${newest}`;
  const made =
    base === null
      ? { why: `no Python ${versions} with its headers is on the PATH or in pyenv` }
      : ensureVenv({ ...wanted, base });
  if (made.why) say(`NOT RUN: ${tests}, since ${made.why}.`);
  return made.python ?? null;
}

/**
 * A virtual environment of pinned packages, made once a machine: `{ python }`, or `{ why }` where it cannot be had.
 *
 * Its folder's name begins with `name`; `lists` are arguments of uv and pip (`-r FILE`, `-c FILE`), and it is made anew when one of
 * `files` changes; after its own packages it sees those of the interpreter `beside`, if one is given; `bytes` is what it needs
 * on the disk, `seconds` the longest that the installation may take, `check` a statement that must run in it.
 */
export function ensureVenv({ name, what, base, lists, files, beside = null, bytes, seconds, check }) {
  const digest = createHash('sha256').update(base.path + base.version + (beside ?? ''));
  for (const file of files) digest.update(readFileSync(file));
  const folder = join(cache(), `${name}-${digest.digest('hex').slice(0, 12)}`);
  const python = join(folder, 'bin', 'python');
  const done = join(folder, 'made');
  if (existsSync(done)) return { python };
  mkdirSync(cache(), { recursive: true });
  for (const other of readdirSync(cache())) {
    // half-made ones and those of earlier pins
    if (other.startsWith(`${name}-`)) rmSync(join(cache(), other), { recursive: true, force: true });
  }
  const { bavail, bsize } = statfsSync(cache());
  if (bavail * bsize < bytes) return { why: `${cache()} has less than ${(bytes / 2 ** 30).toFixed(1)} GiB left` };
  const installer = ensureUv(cache());
  if (installer === null) return { why: 'uv, which installs it, could not be installed' };
  const started = Date.now();
  say(`installing ${what} into ${folder}: once a machine`);
  const steps = [
    [installer.uv, 'venv', '--quiet', '--python', base.path, folder],
    // compiled at once: where no bytecode may be written, each start of a script would else do it anew
    [installer.uv, 'pip', 'install', '--quiet', '--compile-bytecode', '--python', python, ...lists],
    ...(beside === null ? [] : [[python, '-c', SEE, packagesOf(beside)]]),
    [python, '-c', check],
  ];
  for (const step of steps) {
    if (output(step, { timeout: seconds * 1000, env: installer.env }) === null) {
      rmSync(folder, { recursive: true, force: true });
      return { why: `"${step.slice(0, 5).join(' ')} …" failed` };
    }
  }
  writeFileSync(done, '');
  say(`  in ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return { python };
}

/** Puts a folder of packages behind the environment's own. */
const SEE =
  'import os, sys, sysconfig; open(os.path.join(sysconfig.get_path("purelib"), "beside.pth"), "w").write(sys.argv[1] + "\\n")';

const packagesOf = (python) => output([python, '-c', 'import sysconfig; print(sysconfig.get_path("purelib"))']);

/**
 * A Python 3.`oldest` to 3.`newest`, with the headers that modules are compiled against: `{ path, version }`; null: there is none. The
 * system's comes first: distributions build it with profiles, which makes it a tenth faster to start a script than pyenv's, and a
 * third to run one.
 */
export function findBase(oldest, newest, { headers = true } = {}) {
  const names = ['python3', ...Array.from({ length: newest - oldest + 1 }, (_, n) => `python3.${newest - n}`)];
  const tell = 'import sys; print("%d.%d" % sys.version_info[:2])';
  const ask = headers ? `${tell}; import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")` : tell;
  for (const path of ['/usr/bin/python3', ...names.map(which), ...pyenvs()]) {
    const version = path === null ? null : output([path, '-c', ask]);
    const minor = Number(version?.split('.')[1]);
    if (path !== null && version?.startsWith('3.') && minor >= oldest && minor <= newest) return { path, version };
  }
  return null;
}

/** Its shims know of no version that is not switched on. */
function pyenvs() {
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  return existsSync(versions) ? readdirSync(versions).map((name) => join(versions, name, 'bin', 'python')) : [];
}
