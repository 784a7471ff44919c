import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readChangelog } from '../../scripts/release/changelog.mjs';
import { ROOT } from '../cli/oomtune.js';

const text = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8');
const page = (...lines: string[]): string => ['# Changelog', '', ...lines, ''].join('\n');

describe('the changelog', () => {
  it('has the form of Keep a Changelog, and tells nothing twice', () => {
    const [unreleased] = readChangelog(text);
    expect(unreleased?.version).toBe('Unreleased');
    expect(Object.values(unreleased?.changes ?? {}).flat().length).toBeGreaterThan(0);
  });

  it('is read with its versions, dates and entries over several lines', () => {
    const lines = ['## [Unreleased]', '', '### Fixed', '', '- one', '  more of it', '', '## [1.2.3] - 2026-01-31', ''];
    expect(readChangelog(page(...lines, '### Added', '', '- two'))).toEqual([
      { version: 'Unreleased', date: null, changes: { Fixed: ['one more of it'] } },
      { version: '1.2.3', date: '2026-01-31', changes: { Added: ['two'] } },
    ]);
  });

  it.each([
    ['an entry twice', ['## [Unreleased]', '### Added', '- one', '### Fixed', '- one'], 'Told twice'],
    ['a kind of its own', ['## [Unreleased]', '### Improved', '- one'], '"### Improved" in Unreleased is none of'],
    ['a kind twice', ['## [Unreleased]', '### Added', '- one', '### Added', '- two'], 'stands twice'],
    ['kinds in another order', ['## [Unreleased]', '### Fixed', '- one', '### Added', '- two'], 'not as Added,Fixed'],
    ['a release without a date', ['## [Unreleased]', '## [1.0.0]', '### Added', '- one'], 'is not of the form'],
    ['prose among the entries', ['## [Unreleased]', '### Added', 'one'], 'Neither an entry'],
    ['a heading without entries', ['## [Unreleased]', '### Added'], 'nothing under'],
    ['no place for what comes next', ['## [1.0.0] - 2026-01-31', '### Added', '- one'], '[Unreleased]'],
  ])('is refused with %s', (_what, lines, said) => {
    expect(() => readChangelog(page(...lines))).toThrow(said);
  });
});
