import { describe, expect, it } from 'vitest';
import { table } from '../../src/cli/table.js';

const rows = [
  { id: 'j-abcdefgh', name: 'a-name-of-some-length', reason: 'waits for cuda:0, which j-hgfedcba has taken whole' },
  { id: 'j-hgfedcba', name: 'short', reason: '' },
];
const columns = [
  { title: 'JOB', value: (row: (typeof rows)[number]) => row.id },
  { title: 'NAME', value: (row: (typeof rows)[number]) => row.name, least: 10 },
  { title: 'REASON', value: (row: (typeof rows)[number]) => row.reason, least: 12 },
];
const plain = (_style: unknown, text: string): string => text;
const lines = (room: number): string[] => table(rows, columns, plain, room).split('\n');

describe('a table', () => {
  it('is whole where nothing bounds it', () => {
    expect(lines(Number.POSITIVE_INFINITY)[1]).toBe(
      'j-abcdefgh  a-name-of-some-length  waits for cuda:0, which j-hgfedcba has taken whole',
    );
  });

  it('fits into the terminal, and cuts what stands last first', () => {
    expect(lines(60)).toEqual([
      'JOB         NAME                   REASON',
      'j-abcdefgh  a-name-of-some-length  waits for cuda:0, which …',
      'j-hgfedcba  short',
    ]);
    expect(lines(40)[1]).toBe('j-abcdefgh  a-name-of-som…  waits for c…');
  });

  it('keeps what somebody may have to type, and a little of the rest, in a terminal that is too narrow', () => {
    expect(lines(10)[1]).toBe('j-abcdefgh  a-name-of…  waits for c…');
  });
});
