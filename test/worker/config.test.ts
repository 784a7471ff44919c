import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readConfig } from '../../src/common/config.js';
import { PACKAGE_ROOT } from '../../src/common/home.js';

const folder = mkdtempSync(join(tmpdir(), 'oomtune-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

const files = readdirSync(join(PACKAGE_ROOT, 'config'), { recursive: true, encoding: 'utf8' }).filter((file) =>
  file.endsWith('.yaml'),
);

it.each(files)('%s says the same compiled as in YAML', (file) => {
  const path = join(PACKAGE_ROOT, 'config', file);
  const compiled = join(PACKAGE_ROOT, 'dist', 'config', file.replace(/\.yaml$/, '.json'));
  expect(JSON.parse(readFileSync(compiled, 'utf8'))).toEqual(parse(readFileSync(path, 'utf8')));
  expect(readConfig(path)).toEqual(parse(readFileSync(path, 'utf8')));
});

it('reads what lies elsewhere as it stands', () => {
  const path = join(folder, 'ladder.yaml');
  copyFileSync(join(PACKAGE_ROOT, 'config', 'ladder.yaml'), path);
  expect(readConfig(path)).toEqual(parse(readFileSync(path, 'utf8')));
});
