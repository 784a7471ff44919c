import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ERROR_CODES } from '../../src/common/errors.js';
import { ROOT } from './oomtune.js';

const read = (...path: string[]): string => readFileSync(join(ROOT, ...path), 'utf8');

describe('documentation', () => {
  it('lists every error code with its exit code, and no other', () => {
    const rows = [...read('docs', 'reference', 'errors.md').matchAll(/^\| `(OOMTUNE_[A-Z_]+)` \| (\d+) \|/gm)];
    const documented = Object.fromEntries(rows.map(([, code, exit]) => [code, Number(exit)]));
    expect(documented).toEqual(Object.fromEntries(Object.entries(ERROR_CODES).map(([code, { exit }]) => [code, exit])));
  });

  it('gives each dependency its reason, and names no other', () => {
    const { dependencies = {}, devDependencies = {}, optionalDependencies = {} } = JSON.parse(read('package.json'));
    const rows = [...read('docs', 'dependencies.md').matchAll(/^\| `([^`]+)` \| (.{15,}) \|$/gm)].map((row) => row[1]);
    expect(rows.sort()).toEqual(Object.keys({ ...dependencies, ...devDependencies, ...optionalDependencies }).sort());
  });

  it('has a command line reference that is the one of the program', () => {
    execFileSync(process.execPath, [join(ROOT, 'scripts', 'cli-reference.mjs'), '--check']);
  });

  it('tells of every variable that is read or set, and of no other', () => {
    const inFiles = (folder: string, pattern: RegExp, names: RegExp): string[] =>
      readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .filter((file) => pattern.test(file) && !file.startsWith('test/'))
        .flatMap((file) => [...read(folder, file).matchAll(names)].map(([, name]) => name as string));
    const used = new Set([
      ...inFiles('src', /\.ts$/, /\b(OOMTUNE_[A-Z_]*[A-Z])\b/g),
      ...inFiles('python', /\.py$/, /"(OOMTUNE_[A-Z_]+)"/g),
      ...inFiles('native', /\.(cpp|h)$/, /(?:getenv|openReal)\("(OOMTUNE_[A-Z_]+)"/g),
    ]);
    const page = read('docs', 'reference', 'configuration.md');
    const told = new Set([...page.matchAll(/\b(OOMTUNE_[A-Z_]*[A-Z])\b/g)].map(([, name]) => name as string));
    const variables = [...used].filter((name) => !Object.hasOwn(ERROR_CODES, name));
    expect(variables.length).toBeGreaterThan(20);
    expect([...told].sort()).toEqual(variables.sort());
  });

  it('links only to files that are there', () => {
    const folder = (path: string) => readdirSync(join(ROOT, path)).map((file) => `${path}/${file}`);
    const pages = [
      'README.md',
      'CONTRIBUTING.md',
      ...['docs', 'docs/contributing', 'docs/design', 'docs/guides', 'docs/reference'].flatMap(folder),
    ].filter((file) => file.endsWith('.md'));
    expect(pages.length).toBeGreaterThan(8);
    for (const page of pages) {
      for (const [, target] of read(page).matchAll(/\]\(((?!https?:)[^)#]+)/g)) {
        expect(() => read(page, '..', target as string), `${page} → ${target}`).not.toThrow();
      }
    }
  });
});
