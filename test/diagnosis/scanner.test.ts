import { describe, expect, it } from 'vitest';
import { Automaton } from '../../src/worker/diagnosis/automaton.js';
import { diagnose } from '../../src/worker/diagnosis/index.js';
import { type RawLine, Scanner } from '../../src/worker/diagnosis/scanner.js';

const MIB = 1 << 20;

function scan(parts: Iterable<Buffer>, literals = ['needle']) {
  const lines: RawLine[] = [];
  let gaps = 0;
  const scanner = new Scanner(new Automaton(literals), {
    line: (line) => {
      lines.push(line);
      return line.text.includes('needle');
    },
    gap: () => {
      gaps += 1;
    },
  });
  for (const part of parts) scanner.push(part);
  scanner.finish();
  return { lines, gaps };
}

function* dull(megabytes: number): Generator<Buffer> {
  const line = Buffer.from('step 100 loss 2.3000 and nothing else to be said of it at all\n');
  const chunk = Buffer.concat(Array.from({ length: Math.floor(MIB / line.length) }, () => line));
  for (let i = 0; i < megabytes; i++) yield chunk;
}

describe('the scanner', () => {
  it('hands on every line of a short log, whole, with its number', () => {
    const { lines, gaps } = scan([Buffer.from('one\r\ntwo\n\nfour\rfour again\nfive')]);
    expect(lines.map((l) => [l.number, l.text, l.whole])).toEqual([
      [1, 'one', true],
      [2, 'two', true],
      [3, '', true],
      [4, 'four', true],
      [4, 'four again', true],
      [5, 'five', false],
    ]);
    expect(gaps).toBe(0);
  });

  it('hands on what surrounds a find in a long log, and its end, under the right numbers', () => {
    const before = [...dull(4)];
    const count = before.reduce((sum, part) => sum + part.toString().split('\n').length - 1, 0);
    const { lines, gaps } = scan([
      ...before,
      Buffer.from('a NEEdle here\nnext\n'),
      ...dull(4),
      Buffer.from('last words'),
    ]);
    expect(lines.find((l) => l.text === 'a NEEdle here')?.number).toBe(count + 1);
    expect(lines.find((l) => l.text === 'next')?.number).toBe(count + 2);
    expect(lines.at(-1)).toMatchObject({ text: 'last words', number: 2 * count + 3 });
    expect(gaps).toBeGreaterThan(0);
    const bytes = lines.reduce((sum, line) => sum + line.text.length, 0);
    expect(bytes).toBeLessThan(MIB);
  });

  it('finds words in a line that has no end, and holds little of it', () => {
    const part = Buffer.alloc(MIB, 'x');
    const { lines } = scan([part, part, part, Buffer.from('here is a needle and '), part, part]);
    expect(lines.some((l) => l.text.includes('here is a needle'))).toBe(true);
    expect(lines.every((l) => l.number === 1)).toBe(true);
    expect(Math.max(...lines.map((l) => l.text.length))).toBeLessThanOrEqual(16 << 10);
  });

  it('reads little of a log that is nothing but finds, and still all of its first and last ones', () => {
    const line = Buffer.from('needle needle needle needle needle needle needle\n');
    const chunk = Buffer.concat(Array.from({ length: Math.floor(MIB / line.length) }, () => line));
    const { lines } = scan([Buffer.from('first\n'), ...Array.from({ length: 24 }, () => chunk), Buffer.from('last\n')]);
    expect(lines[0]?.text).toBe('first');
    expect(lines.at(-1)?.text).toBe('last');
    expect(lines.reduce((sum, l) => sum + l.text.length, 0)).toBeLessThan(6 * MIB);
  });
});

describe('a log of many megabytes', () => {
  const OOM =
    'Traceback (most recent call last):\n  File "t.py", line 3, in train\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n';

  it('is judged by what stands deep in its middle', async () => {
    const log = [
      ...dull(12),
      Buffer.from(OOM),
      ...Array.from({ length: 12 }, () => Buffer.alloc(MIB, 'shutting down ranks\n')),
    ];
    const d = await diagnose({ log, exitCode: 1 });
    expect(d).toMatchObject({ class: 'device_oom', phase: 'train', fields: { tried_bytes: 2 * 2 ** 30 } });
  });

  it('without a line feed is judged too', async () => {
    const log = [
      Buffer.alloc(20 * MIB, '50%|#####     | 5/10 [00:01<00:01, 4.9it/s]\r'),
      Buffer.from(OOM),
      Buffer.alloc(MIB, 0),
    ];
    expect(await diagnose({ log, exitCode: 1 })).toMatchObject({ class: 'device_oom', line: 4 });
  });

  it('that repeats one error a hundred thousand times is that error', async () => {
    const chunk = Buffer.from(OOM.repeat(2000));
    const d = await diagnose({ log: Array.from({ length: 50 }, () => chunk), exitCode: 1 });
    expect(d).toMatchObject({ class: 'device_oom', line: 4 * 100_000 });
  });
});
