import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { PACKAGE_ROOT } from '../../src/common/home.js';
import { documents } from '../../src/contract/documents.js';

it('the JSON Schemas of docs/reference/schemas are those of the contract, and go with the package', () => {
  execFileSync(process.execPath, [join(PACKAGE_ROOT, 'scripts', 'json-schemas.mjs'), '--check']);
  const folder = join(PACKAGE_ROOT, 'docs', 'reference', 'schemas');
  expect(readdirSync(folder).sort()).toEqual(
    Object.keys(documents)
      .map((name) => `${name}.json`)
      .sort(),
  );
  const { files } = JSON.parse(readFileSync(join(PACKAGE_ROOT, 'package.json'), 'utf8'));
  expect(files).toContain('docs/reference/schemas');
});

it('a JSON Schema lets fields pass that a later version adds', () => {
  for (const name of Object.keys(documents)) {
    const text = readFileSync(join(PACKAGE_ROOT, 'docs', 'reference', 'schemas', `${name}.json`), 'utf8');
    expect([name, text.includes('"additionalProperties": false')]).toEqual([name, false]);
  }
});

/** Read where they are, and by nobody else: files that people write, and files of one process's own. */
const OWN = [
  'src/cli/job-options.ts', // argv
  'src/daemon/daemon-file.ts',
  'src/daemon/job-backups.ts',
  'src/daemon/http/routes.ts', // what a login posts
  'src/daemon/retention.ts',
  'src/daemon/saved-environment.ts',
  'src/store/fair-share.ts', // config/fair-share.yaml
  'src/store/lease-files.ts',
  'src/tuner/ladder.ts',
  'src/worker/command/launchers.ts',
  'src/worker/diagnosis/signature-file.ts',
  'src/worker/diagnosis/signatures.ts',
  'src/worker/estimate/cards.ts', // config/gpus.yaml
  'src/worker/presets/load.ts',
  'src/worker/presets/schema.ts',
];

it('no message, record or document is defined beside the contract', () => {
  const sources = readdirSync(join(PACKAGE_ROOT, 'src'), { recursive: true, encoding: 'utf8' })
    .map((path) => `src/${path}`)
    .filter((path) => path.endsWith('.ts') && !path.startsWith('src/contract/'));
  const defining = sources.filter((path) =>
    /\bz\s*\.(object|strictObject)\(/.test(readFileSync(join(PACKAGE_ROOT, path), 'utf8')),
  );
  expect(defining.filter((path) => !OWN.includes(path))).toEqual([]);
});
