import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { loadNative } from '../../src/runtime/native.js';
import { neededLibraries, newestVersions } from './elf.js';

const { folder } = loadNative();

interface Floor {
  /** Newest minor version of glibc 2 that may be asked for; 0: it is static. */
  glibc: number;
  needs: string[];
}

const IN_JOBS: Floor = { glibc: 17, needs: ['libc.so.6', 'libdl.so.2'] };

/**
 * Everything that is shipped, and what it may ask of the system. What is loaded into jobs runs in whatever
 * container the user has; the addon runs in Node, whose own builds need glibc 2.28 and the C++ runtime of GCC 8.
 */
const FLOORS: Record<string, Floor> = {
  'cuda/libcuda.so.1': IN_JOBS,
  'cuda/libnvidia-ml.so.1': IN_JOBS,
  'liboomtune_host.so': IN_JOBS,
  'oomtune-supervisor': { glibc: 0, needs: [] },
  'oomtune.node': { glibc: 28, needs: ['libc.so.6', 'libdl.so.2', 'libgcc_s.so.1', 'libstdc++.so.6'] },
};
const GCC_8 = 25;

/** As `npm pack` lays it out. */
const packed = readFileSync(join(import.meta.dirname, '..', '..', 'scripts', 'package', 'prepack.mjs'), 'utf8');
const shipped = [...(/const BESIDE = \[(.*?)\]/s.exec(packed)?.[1]?.matchAll(/'([^']+)'/g) ?? [])].map(
  (match) => match[1],
);

test('everything that is packed has a floor', () => {
  expect([...shipped, 'oomtune.node'].sort()).toEqual(Object.keys(FLOORS).sort());
});

describe.each(Object.entries(FLOORS))('%s', (name, floor) => {
  const file = join(folder, name);

  test(floor.glibc > 0 ? `loads with glibc 2.${floor.glibc}` : 'needs no libc', () => {
    const { GLIBC = 0, GLIBCXX = 0 } = newestVersions(file);
    expect(GLIBC).toBeLessThanOrEqual(floor.glibc);
    expect(GLIBC > 0).toBe(floor.glibc > 0);
    expect(GLIBCXX).toBeLessThanOrEqual(floor.needs.includes('libstdc++.so.6') ? GCC_8 : 0);
  });

  test('asks for no library that may not be there', () => {
    expect(neededLibraries(file).filter((library) => !floor.needs.includes(library))).toEqual([]);
  });
});
