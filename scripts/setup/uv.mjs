import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { onceAMachine } from './once.mjs';
import { output, ROOT } from './say.mjs';
import { which } from './system.mjs';

const PINS = join(ROOT, 'scripts', 'setup', 'uv.txt');
const PATIENCE_MS = 5 * 60_000;

/** What pip has been told of an index, by its name there, and what uv, which does not read that, is told it by. */
const SETTINGS = {
  'index-url': 'UV_DEFAULT_INDEX',
  'extra-index-url': 'UV_INDEX',
  'find-links': 'UV_FIND_LINKS',
  cert: 'SSL_CERT_FILE',
};

let found;

/**
 * What installs Python's packages, several times as fast as pip, which installs it into `cache` once a machine: `{ uv, env }`, the
 * program and the environment that it needs; null where it cannot be had.
 */
export function ensureUv(cache) {
  if (found === undefined) found = install(cache);
  return found;
}

function install(cache) {
  const pip = pips();
  if (pip === null) return null;
  const digest = createHash('sha256').update(readFileSync(PINS)).digest('hex').slice(0, 12);
  const folder = join(cache, `uv-${digest}`);
  const there = onceAMachine(folder, "what installs Python's packages", (made) => {
    const words = [...pip, 'install', '--quiet', '--no-input', '--target', made, '-r', PINS];
    return output(words, { timeout: PATIENCE_MS }) !== null && output([join(made, 'bin', 'uv'), '--version']) !== null;
  });
  return there ? { uv: join(folder, 'bin', 'uv'), env: asToldTo(pip) } : null;
}

/** The system's pip, or the one of the path. */
function pips() {
  const all = ['/usr/bin/python3', which('python3')].filter((path) => path !== null).map((path) => [path, '-m', 'pip']);
  return all.find((pip) => output([...pip, '--version']) !== null) ?? null;
}

/** From pip's files and the environment's PIP_*; what the environment tells uv itself comes first. */
function asToldTo(pip) {
  const told = {};
  for (const line of (output([...pip, 'config', 'list']) ?? '').split('\n')) {
    const [, name, value] = /^(?:global|install|:env:)\.([a-z-]+)='(.*)'$/.exec(line) ?? [];
    const variable = SETTINGS[name];
    if (variable !== undefined && process.env[variable] === undefined)
      told[variable] = value.replaceAll('\\n', ' ').trim();
  }
  return told;
}
