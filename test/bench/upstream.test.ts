import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
// @ts-expect-error the benchmarks are plain JavaScript
import { verdictOf } from '../../bench/upstream/report.mjs';
// @ts-expect-error the benchmarks are plain JavaScript
import { ROWS } from '../../bench/upstream/rows/index.mjs';
// @ts-expect-error the benchmarks are plain JavaScript
import { COMMITS } from '../../bench/upstream/sources.mjs';
import { parseSize } from '../../src/common/size.js';

interface Row {
  name: string;
  repository: string;
  command: string;
  links?: Record<string, string>;
  own?: number;
  cpu?: { budget: string; own?: number };
  cuda?: { budget: string; own?: number };
}

const makers = [...readFileSync('bench/upstream/data.py', 'utf8').matchAll(/^@maker\ndef (\w+)/gm)].map(([, name]) =>
  name?.replaceAll('_', '-'),
);

describe('the list of programs of others', () => {
  test('has at least 40, each once', () => {
    const names = (ROWS as Row[]).map(({ name }) => name);
    expect(names.length).toBeGreaterThanOrEqual(40);
    expect(new Set(names).size).toBe(names.length);
  });

  test.each(ROWS as Row[])('$name can be fetched, fed and budgeted', (row) => {
    expect(COMMITS[row.repository]).toMatch(/^[0-9a-f]{40}$/);
    const inCommand = [...row.command.matchAll(/\{data:([^}+]*)/g)].map(([, maker]) => maker);
    const linked = Object.values(row.links ?? {}).map((words) => words.split(/[ #]/)[0]);
    for (const maker of [...inCommand, ...linked]) expect(makers).toContain(maker);
    const places = [row.cpu, row.cuda].filter((place) => place !== undefined);
    expect(places.length).toBeGreaterThan(0);
    for (const place of places) {
      expect(parseSize(place.budget)).toBeGreaterThan(0);
      expect(place.own ?? row.own).toBeGreaterThan(0);
    }
  });
});

describe('the verdict on a program', () => {
  const fine = {
    alone: { same: true },
    search: { status: 'found', found: 100 },
    truth: { holds: true, more_fits: false },
    stands: { exit: 0, same: true },
    cut: { exit: 0, accumulation: 2 },
  };

  test('is ok where all holds', () => {
    expect(verdictOf(fine)).toBe('ok');
  });

  test.each([
    ['search', { search: { status: 'nothing_fits' } }],
    ['truth', { truth: { holds: false, more_fits: false } }],
    ['truth', { truth: { holds: true, more_fits: true } }],
    ['as it stands', { stands: { exit: 0, same: false } }],
    ['cut', { cut: { exit: 1 } }],
  ])('names %s', (fault, part) => {
    expect(verdictOf({ ...fine, ...part })).toBe(fault);
  });

  test('is not that of other weights where rounding alone ends as far apart', () => {
    const cut = { ...fine.cut, apart: 2e-3, told: [] };
    expect(verdictOf({ ...fine, cut })).toBe('other weights, untold');
    expect(verdictOf({ ...fine, cut: { ...cut, rounding: 1e-3 } })).toBe('ok');
    expect(verdictOf({ ...fine, cut: { ...cut, rounding: 1e-6 } })).toBe('other weights, untold');
  });

  test('is none of oomtune where the program fails in a run without it', () => {
    expect(
      verdictOf({ alone: { failed: 'exit 1, not for memory: NameError' }, search: { status: 'failed' } }),
    ).toContain('the program itself fails');
  });

  test('does not ask for more than the samples that there are', () => {
    const more = { ...fine, truth: { holds: true, more_fits: true } };
    expect(verdictOf({ ...more, search: { ...fine.search, found: 300, samples: 300 } })).toBe('ok');
    expect(verdictOf({ ...more, search: { ...fine.search, found: 300 } }, { samples: 300 })).toBe('ok');
    expect(verdictOf({ ...more, search: { ...fine.search, found: 299, samples: 300 } })).toBe('truth');
  });
});
