import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ERROR_CODES } from '../../src/common/errors.js';
import { ROOT } from './oomtune.js';

const read = (...path: string[]): string => readFileSync(join(ROOT, ...path), 'utf8');

const pages = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md'))
  .map((file) => join('docs', file))
  .concat('README.md', 'CONTRIBUTING.md');

/** Where a page may leave off the beginning of a source's path. */
const SOURCES = ['', 'src', 'python/oomtune', 'python/oomtune/hook'];

/** Paths of this repository that a page names, in prose, code or commands: those whose beginning it has, and sources. */
function pathsIn(page: string): string[] {
  const folders = readdirSync(ROOT, { withFileTypes: true }).filter((one) => one.isDirectory());
  const top = new Set(folders.map(({ name }) => name));
  const found = [...read(page).matchAll(/(?<![\w./:@$~<>{}-])([\w.-]+(?:\/[\w.*-]+)+)(?![\w<{$])/g)];
  return found
    .map(([, path]) => (path as string).replace(/\.+$/, ''))
    .filter((path) => top.has(path.split('/')[0] as string) || /\.(ts|py|lua)$/.test(path))
    .filter((path) => !/\bNAME\b|\*/.test(path)); // stands for any
}

describe('documentation', () => {
  it('lists every error code with its exit code, and tells each with its causes and what to do; no other', () => {
    const page = read('docs', 'reference', 'errors.md');
    const codes = Object.fromEntries(Object.entries(ERROR_CODES).map(([code, { exit }]) => [code, exit]));
    const rows = [...page.matchAll(/^\| \[`(OOMTUNE_[A-Z_]+)`\]\(#(\w+)\) \| (\d+) \|/gm)];
    expect(Object.fromEntries(rows.map(([, code, , exit]) => [code, Number(exit)]))).toEqual(codes);
    expect(rows.filter(([, code, anchor]) => code?.toLowerCase() !== anchor)).toEqual([]);
    const sections = page.split(/^### (?=OOMTUNE_)/m).slice(1);
    const told = sections.map((section) =>
      /^(\w+)\n\n\S.* Exit code (\d+)\.\n\n(?:Cause: .+\n|Causes:\n\n(?:- .+\n){2,})\n\*\*What to do\.\*\* .+\n$/.exec(
        section.trimEnd().concat('\n'),
      ),
    );
    expect(sections.filter((_section, at) => told[at] === null)).toEqual([]);
    expect(Object.fromEntries(told.map((match) => [match?.[1], Number(match?.[2])]))).toEqual(codes);
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
    const [prefixes, names] = [true, false].map((prefix) => [...used].filter((name) => name.endsWith('_') === prefix));
    for (const prefix of prefixes as string[])
      expect(
        [...told].filter((name) => name.startsWith(prefix)),
        prefix,
      ).not.toEqual([]);
    const variables = (names as string[]).filter((name) => !Object.hasOwn(ERROR_CODES, name));
    expect(variables.length).toBeGreaterThan(20);
    expect([...told].sort()).toEqual(variables.sort());
  });

  it('links only to files that are there', () => {
    expect(pages.length).toBeGreaterThan(20);
    for (const page of pages) {
      for (const [, target] of read(page).matchAll(/\]\(((?!https?:)[^)#]+)/g)) {
        expect(() => read(page, '..', target as string), `${page} → ${target}`).not.toThrow();
      }
    }
  });

  it('names only paths that are there', () => {
    const built = read('.gitignore')
      .split('\n')
      .filter((line) => line.endsWith('/'))
      .map((folder) => new RegExp(`^${folder.replaceAll('.', '\\.').replaceAll('*', '[^/]*')}`));
    const missing = pages.flatMap((page) =>
      pathsIn(page)
        .filter((path) => !SOURCES.some((root) => existsSync(join(ROOT, root, path))))
        .filter((path) => !built.some((folder) => folder.test(path)))
        .filter((path) => !/^config\/.*\.py$/.test(path)) // nanoGPT's: ours holds data only
        .map((path) => `${page}: ${path}`),
    );
    expect(pages.flatMap(pathsIn).length).toBeGreaterThan(150);
    expect(missing).toEqual([]);
  });

  it('names only scripts of package.json that are there', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const named = pages.flatMap((page) =>
      [...read(page).matchAll(/npm (?:run ([\w:]+)|(test|start)\b)/g)].map(([, run, own]) => run ?? (own as string)),
    );
    expect(named.length).toBeGreaterThan(5);
    expect(named.filter((name) => scripts[name] === undefined)).toEqual([]);
  });
});
