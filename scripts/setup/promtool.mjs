import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { output, ROOT, say } from './say.mjs';
import { which } from './system.mjs';

/** Not in build/, which cmake-js empties. */
const OWN = join(ROOT, 'build-tools', 'promtool');

/** Prometheus's own checker of rules and metrics: the system's, else the one that set-up took out of Debian's package; null: none. */
export const findPromtool = () => which('promtool') ?? (existsSync(OWN) ? OWN : null);

/**
 * Takes promtool out of Debian's package (19 MB) without installing that: it would start a server. Where it cannot be had
 * the tests that need it are skipped.
 */
export function ensurePromtool() {
  if (findPromtool() !== null) return;
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-promtool-'));
  try {
    say('fetching promtool out of the package prometheus');
    const fetch = () =>
      output(['apt-get', 'download', '-qq', 'prometheus'], { cwd: folder, timeout: 120_000 }) !== null;
    // A fresh system has no list of packages yet
    const fetched = fetch() || (output(['apt-get', 'update', '-qq'], { timeout: 120_000 }) !== null && fetch());
    const file = readdirSync(folder).find((name) => name.endsWith('.deb'));
    if (!fetched || !file || output(['dpkg-deb', '-x', join(folder, file), folder]) === null) {
      say('  it cannot be had: the tests that check metrics and alerts with it are skipped');
      return;
    }
    mkdirSync(join(OWN, '..'), { recursive: true });
    copyFileSync(join(folder, 'usr', 'bin', 'promtool'), OWN);
    chmodSync(OWN, 0o755);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
