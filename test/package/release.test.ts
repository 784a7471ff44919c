import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { ROOT } from '../cli/oomtune.js';
import { call } from './installed.js';

const folder = mkdtempSync(join(tmpdir(), 'oomtune-release-'));
const HELD = ['scripts', 'package.json', 'package-lock.json', 'CHANGELOG.md'];
const PYTHON = ['python/pyproject.toml', 'python/oomtune/__init__.py'];

const read = (file: string): string => readFileSync(join(folder, file), 'utf8');
const release = (...args: string[]) =>
  call(process.execPath, [join(folder, 'scripts', 'release.mjs'), ...args], { cwd: folder, env: process.env });

/** What a release changes, as a checkout of its own. */
beforeEach(() => {
  mkdirSync(join(folder, 'python', 'oomtune'), { recursive: true });
  for (const file of [...HELD, ...PYTHON]) cpSync(join(ROOT, file), join(folder, file), { recursive: true });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The lines that differ from the checkout's. */
function changed(file: string): string[] {
  const before = new Set(readFileSync(join(ROOT, file), 'utf8').split('\n'));
  return read(file)
    .split('\n')
    .filter((line) => !before.has(line));
}

describe('a release is prepared', () => {
  it('with its version in every file, and nothing else changed', async () => {
    const { code, stderr } = await release('prepare', '97.98.99', '--date', '2030-01-31');
    expect(code, stderr).toBe(0);
    expect(changed('package.json')).toEqual(['  "version": "97.98.99",']);
    expect(changed('package-lock.json')).toEqual(['  "version": "97.98.99",', '      "version": "97.98.99",']);
    expect(changed('python/pyproject.toml')).toEqual(['version = "97.98.99"']);
    expect(changed('python/oomtune/__init__.py')).toEqual(['__version__ = "97.98.99"']);
    expect(changed('CHANGELOG.md')).toEqual(['## [97.98.99] - 2030-01-31']);
    expect(read('CHANGELOG.md')).toContain('## [Unreleased]\n\n## [97.98.99] - 2030-01-31\n\n### Added\n');
  });

  it('with the address of its repository, which nobody but the publisher knows', async () => {
    for (const address of ['https://git.example/someone/first', 'https://git.example/someone/oomtune']) {
      writeFileSync(join(folder, 'CHANGELOG.md'), readFileSync(join(ROOT, 'CHANGELOG.md')));
      const { code, stderr } = await release('prepare', '97.98.99', '--repository', address);
      expect(code, stderr).toBe(0);
    }
    const url = 'git+https://git.example/someone/oomtune.git';
    expect(JSON.parse(read('package.json')).repository).toEqual({ type: 'git', url });
    expect(read('python/pyproject.toml').match(/^\[project\.urls\]\n(.*\n)*?\n/m)?.[0]).toBe(
      [
        '[project.urls]',
        'Repository = "https://git.example/someone/oomtune"',
        'Changelog = "https://git.example/someone/oomtune/blob/main/CHANGELOG.md"',
        '',
        '',
      ].join('\n'),
    );
  });

  it.each([
    ['a version of another form', ['prepare', 'v1.2'], 'Expected a version such as 1.2.3, got "v1.2".'],
    ['no version', ['prepare'], 'Expected a version'],
    ['another word', ['publish'], 'Expected prepare or pack'],
    ['a day of another form', ['prepare', '97.0.0', '--date', 'today'], 'Expected a day such as 2026-01-31'],
  ])('but not with %s', async (_what, args, said) => {
    const { code, stderr } = await release(...args);
    expect([code, stderr]).toEqual([5, expect.stringContaining(said)]);
    for (const file of [...HELD.slice(1), ...PYTHON]) expect(changed(file)).toEqual([]);
  });

  it('only once, and then only a newer one', async () => {
    await release('prepare', '97.98.99');
    const again = await release('prepare', '97.98.100');
    expect([again.code, again.stderr]).toEqual([5, expect.stringContaining('nothing under Unreleased')]);
    const more = read('CHANGELOG.md').replace('[Unreleased]\n', '[Unreleased]\n\n### Added\n\n- something\n');
    writeFileSync(join(folder, 'CHANGELOG.md'), more);
    const older = await release('prepare', '97.98.98');
    expect([older.code, older.stderr]).toEqual([5, expect.stringContaining('not newer than 97.98.99')]);
    expect((await release('prepare', '97.99.0')).code).toBe(0);
  });
});

describe('a release is not packed', () => {
  it('where the changelog does not tell of it', async () => {
    const { code, stderr } = await release('pack');
    expect([code, stderr]).toEqual([5, expect.stringContaining('CHANGELOG.md does not tell of')]);
  });

  it('where its files are of several versions', async () => {
    await release('prepare', '97.98.99');
    writeFileSync(join(folder, PYTHON[1] as string), '__version__ = "97.98.98"\n');
    const { code, stderr } = await release('pack');
    expect(code).toBe(5);
    expect(stderr).toContain('python/oomtune/__init__.py 97.98.98');
  });
});
