#!/usr/bin/env node
/**
 * Makes a release.
 *
 *   node scripts/release.mjs prepare VERSION [--date YYYY-MM-DD] [--repository URL]
 *     sets the version in every file and in CHANGELOG.md; what is left is to look at it, commit it and tag it
 *   node scripts/release.mjs pack [--draft] [--out FOLDER]
 *     tarball for npm, wheel for pip, SBOM and checksums, checked by both indexes' rules; publishes nothing
 *
 * `--draft` packs what CHANGELOG.md has no release for yet.
 */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { readChangelog } from './release/changelog.mjs';
import { checkPublishable, pack } from './release/pack.mjs';
import { setChangelog, setRepository, setVersion, version } from './release/version.mjs';
import { Missing, ROOT, say } from './setup/say.mjs';
import { withErrors } from './setup.mjs';

const USAGE =
  'release.mjs prepare VERSION [--date DAY] [--repository URL], or release.mjs pack [--draft] [--out FOLDER]';
const options = {
  date: { type: 'string' },
  repository: { type: 'string' },
  draft: { type: 'boolean', default: false },
  out: { type: 'string', default: join(ROOT, 'dist', 'release') },
};

const parts = (version) => version.split('.').map(Number);
const newer = (one, other) => parts(one).reduce((sign, part, at) => sign || part - parts(other)[at], 0) > 0;
const changelog = () => readChangelog(readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8'));

function prepare(next, { date = new Date().toISOString().slice(0, 10), repository }) {
  if (!/^\d+\.\d+\.\d+$/.test(next ?? '')) throw new Missing(`Expected a version such as 1.2.3, got "${next}".`, USAGE);
  if (!/^\d{4}-\d\d-\d\d$/.test(date)) throw new Missing(`Expected a day such as 2026-01-31, got "${date}".`, USAGE);
  const [unreleased, latest] = changelog();
  if (Object.keys(unreleased.changes).length === 0) {
    throw new Missing('CHANGELOG.md has nothing under Unreleased.', 'Write down what users will notice.');
  }
  if (latest && !newer(next, latest.version)) {
    throw new Missing(`${next} is not newer than ${latest.version}, the latest of CHANGELOG.md.`, USAGE);
  }
  setVersion(next);
  setChangelog(next, date);
  if (repository !== undefined) setRepository(repository);
  say(`${next} stands in all files. Build and test it, commit it, tag it v${next}, then: npm run release -- pack`);
}

function makeFiles({ draft, out }) {
  const current = version();
  const [, latest] = changelog();
  if (!draft && latest?.version !== current) {
    const found = latest ? `its latest is ${latest.version}` : 'it has no release';
    throw new Missing(
      `CHANGELOG.md does not tell of ${current}: ${found}.`,
      `release.mjs prepare ${current}, or --draft`,
    );
  }
  const folder = resolve(out);
  const files = pack(folder);
  const named = (end) =>
    join(
      folder,
      files.find((file) => file.endsWith(end)),
    );
  const checked = checkPublishable(named('.tgz'), named('.whl'));
  say(`passed: ${checked.join(', ')}`);
  process.stdout.write(`${files.map((file) => join(folder, file)).join('\n')}\n`);
}

await withErrors(() => {
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [what, next] = positionals;
  if (what === 'prepare') prepare(next, values);
  else if (what === 'pack') makeFiles(values);
  else throw new Missing(`Expected prepare or pack, got "${what ?? ''}".`, USAGE);
});
