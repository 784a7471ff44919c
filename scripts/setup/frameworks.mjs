import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { output, ROOT, say } from './say.mjs';
import { which } from './system.mjs';

const LISTS = ['requirements.txt', 'constraints.txt'].map((name) => join(ROOT, 'test', 'frameworks', name));
/** Bytes that the environment takes (6.2 GiB with torch 2.15) and that pip needs besides while it unpacks. */
const SPACE = 10 * 2 ** 30;
/** Seconds for the download and the installation: four minutes on two cores with a good network. */
const PATIENCE = 40 * 60;
/** Oldest and newest minor version of Python 3 that the pinned versions have wheels for. */
const [OLDEST, NEWEST] = [11, 14];

/** Outside the checkout, as a fresh clone is to find it again. */
const cache = () =>
  process.env.OOMTUNE_TEST_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'oomtune-tests');

/**
 * An interpreter with the frameworks that test/frameworks pins, made once a machine; null where it cannot be had, which is
 * said aloud, as the tests that need it do not run then.
 */
export function ensureFrameworks() {
  const base = findBase();
  if (base === null) return without(`no Python 3.${OLDEST} to 3.${NEWEST} with the module venv is here`);
  const digest = createHash('sha256').update(base.version);
  for (const list of LISTS) digest.update(readFileSync(list));
  const name = `venv-${digest.digest('hex').slice(0, 12)}`;
  const folder = join(cache(), name);
  const python = join(folder, 'bin', 'python');
  const done = join(folder, 'made');
  if (existsSync(done)) return python;
  mkdirSync(cache(), { recursive: true });
  for (const other of readdirSync(cache())) {
    // half-made ones and those of earlier pins
    if (other.startsWith('venv-')) rmSync(join(cache(), other), { recursive: true, force: true });
  }
  const { bavail, bsize } = statfsSync(cache());
  if (bavail * bsize < SPACE) return without(`${cache()} has less than ${SPACE / 2 ** 30} GiB left`);
  const started = Date.now();
  say(`installing the frameworks that tests run for real into ${folder}: some minutes, once`);
  const steps = [
    [base.path, '-m', 'venv', folder],
    [
      python,
      '-m',
      'pip',
      'install',
      '--quiet',
      '--no-input',
      '--disable-pip-version-check',
      '-c',
      LISTS[1],
      '-r',
      LISTS[0],
    ],
    [python, '-c', 'import torch, transformers, lightning'],
  ];
  for (const step of steps) {
    if (output(step, { timeout: PATIENCE * 1000 }) === null) {
      rmSync(folder, { recursive: true, force: true });
      return without(`"${step.slice(0, 5).join(' ')} …" failed`);
    }
  }
  writeFileSync(done, '');
  say(`  in ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return python;
}

function without(why) {
  say(`NOT RUN: the tests with real frameworks and current torch, since ${why}.`);
  return null;
}

function findBase() {
  const names = ['python3', ...Array.from({ length: NEWEST - OLDEST + 1 }, (_, n) => `python3.${NEWEST - n}`)];
  const ask = 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])';
  for (const name of names) {
    const path = which(name);
    const version = path === null ? null : output([path, '-c', ask]);
    const minor = Number(version?.split('.')[1]);
    if (path !== null && version?.startsWith('3.') && minor >= OLDEST && minor <= NEWEST) return { path, version };
  }
  return null;
}
