/** The files of a release, and what both indexes ask of them. */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { makeWheel } from '../package/wheel.mjs';
import { Missing, output, ROOT, say } from '../setup/say.mjs';
import { ensureTools } from '../setup/tools.mjs';
import { sbom } from './sbom.mjs';

const TWINE = {
  name: 'release-tools',
  tools: 'the check by the Python index’s rules',
  kind: 'wheel',
  check: 'import twine',
};

function call(argv, what) {
  say(`  $ ${argv.map((word) => basename(word)).join(' ')}`);
  const said = output(argv, { cwd: ROOT, timeout: 600_000 });
  if (said === null) throw new Missing(`${what} failed.`, `Run it by hand: ${argv.join(' ')}`);
  return said;
}

/** Packs the checkout into a folder, which is emptied first: tarball, wheel, SBOM, checksums. Returns the files' names. */
export function pack(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  call(['npm', 'pack', '--pack-destination', folder], 'npm pack');
  const tarball = join(folder, readdirSync(folder)[0]);
  makeWheel(tarball, folder);
  const made = sbom();
  if (made === null) throw new Missing('npm sbom failed.', 'Run it by hand: npm sbom --sbom-format cyclonedx');
  writeFileSync(tarball.replace(/\.tgz$/, '.sbom.cdx.json'), `${JSON.stringify(made, null, 2)}\n`);
  writeChecksums(folder);
  return readdirSync(folder).sort();
}

/** As `sha256sum --check` reads them. */
function writeChecksums(folder) {
  const digest = (name) =>
    createHash('sha256')
      .update(readFileSync(join(folder, name)))
      .digest('hex');
  const lines = readdirSync(folder)
    .sort()
    .map((name) => `${digest(name)}  ${name}\n`);
  writeFileSync(join(folder, 'SHA256SUMS'), lines.join(''));
}

/** What the indexes would refuse or complain of. Returns what was checked; throws Missing with what they said. */
export function checkPublishable(tarball, wheel) {
  const checked = [];
  const published = output(['npm', 'publish', '--dry-run', '--json', '--provenance=false', tarball], { cwd: ROOT });
  if (published === null) throw new Missing('npm would not publish the tarball.', `npm publish --dry-run ${tarball}`);
  checked.push('npm publish --dry-run');
  const bin = ensureTools(TWINE);
  if (bin !== null) {
    call([join(bin, 'twine'), 'check', '--strict', wheel], 'twine check');
    checked.push('twine check --strict');
  }
  return checked;
}
