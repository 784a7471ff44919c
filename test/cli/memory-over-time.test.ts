import { expect, it } from 'vitest';
import { memoryOverTime } from '../../src/cli/memory-over-time.js';
import type { MemorySample } from '../../src/contract/verbs.js';
import { job } from '../store/samples.js';

const BEGIN = Date.parse('2026-01-02T03:04:05.000Z');
const MIB = 2 ** 20;
const iso = (seconds: number): string => new Date(BEGIN + seconds * 1000).toISOString();
/** A look each half second. */
const looks = (from: number, to: number, bytes: number, launch = 1): MemorySample[] =>
  Array.from({ length: (to - from) * 2 + 1 }, (_, n) => ({ at: BEGIN + (from + n / 2) * 1000, launch, bytes }));
const told = (samples: MemorySample[], ended: number | null): string => {
  const ran = job({ started_at: iso(0), ended_at: ended === null ? null : iso(ended) });
  const trace = { epoch: 1, budget_bytes: null, every: 1, samples };
  return memoryOverTime(ran, trace, (_, text) => text).join('\n');
};

it('tells for how long a job was seen, and of how long where that was not all of it', () => {
  expect(told(looks(0, 20, MIB), 20)).toMatch(/peak 1 MiB, seen for 20 s$/);
  expect(told(looks(0, 20, MIB), null)).toMatch(/peak 1 MiB, seen for 20 s$/);
  expect(told(looks(0, 3, MIB), 37)).toMatch(/peak 1 MiB, seen for 3\.0 s \(it ran for 37 s\)$/);
  expect(told([...looks(0, 3, MIB), ...looks(30, 37, 2 * MIB)], 37)).toMatch(
    /peak 2 MiB, seen for 10 s \(it ran for 37 s\)$/,
  );
  expect(told(looks(0, 0, MIB), 1)).toMatch(/peak 1 MiB, seen once$/);
  expect(told(looks(0, 0, MIB), 9)).toMatch(/peak 1 MiB, seen once \(it ran for 9\.0 s\)$/);
});

it('leaves out a launch in which nothing was seen', () => {
  expect(told(looks(0, 0, 0), 1)).toBe('');
  const second = told([...looks(0, 0, 0), ...looks(2, 9, MIB, 2)], 9);
  expect(second).toContain('launch 2');
  expect(second).not.toContain('launch 1');
});
