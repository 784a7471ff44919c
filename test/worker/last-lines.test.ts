import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { lastLines } from '../../src/worker/last-lines.js';

const folder = mkdtempSync(join(tmpdir(), 'oomtune-lines-'));
afterAll(() => rmSync(folder, { recursive: true }));

function logOf(text: string): string {
  const file = join(folder, 'log');
  writeFileSync(file, text);
  return file;
}

describe('the last lines of a log', () => {
  it('are all of a short one, without blanks', () => {
    expect(lastLines(logOf('one\n\n  two\n'))).toEqual(['one', '  two']);
    expect(lastLines(logOf(''))).toEqual([]);
  });

  it('are a dozen of a long one, and never a line that was cut', () => {
    const lines = Array.from({ length: 1000 }, (_, n) => `line ${n} ${'x'.repeat(n % 50)}`);
    expect(lastLines(logOf(lines.join('\n')))).toEqual(lines.slice(-12));
    expect(lastLines(logOf(`${'a'.repeat(20_000)}\nlast\n`))).toEqual(['last']);
  });

  it('are none where there is no log', () => {
    expect(lastLines(join(folder, 'absent'))).toEqual([]);
  });

  it('end with what the job died of, whatever libraries say after it', () => {
    const text =
      "  File 'train.py', line 3\nTypeError: takes\n  1. (self: Buffer)\nnanobind: leaked 3 functions!\n - leaked 'a'\n";
    const evidence = 'TypeError: takes 1. (self: Buffer)';
    expect(lastLines(logOf(text), 0, evidence)).toEqual([
      "  File 'train.py', line 3",
      'TypeError: takes',
      '  1. (self: Buffer)',
    ]);
    expect(lastLines(logOf(text), 0, 'something else')).toHaveLength(5);
  });
});
