import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { plain, plainText, TerminalText } from '../../src/common/terminal.js';
import './draws.js';

const safe = (text: string | Buffer, colours = true, cut = Number.POSITIVE_INFINITY): string => {
  const filter = new TerminalText(colours);
  const bytes = Buffer.from(text as string);
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += cut) parts.push(Buffer.from(filter.take(bytes.subarray(at, at + cut))));
  return Buffer.concat([...parts, filter.end()]).toString('utf8');
};

const CASES: [what: string, from: string, to: string][] = [
  ['plain text', 'é 名 🙂 a\tb\n', 'é 名 🙂 a\tb\n'],
  ['colours', '\u001b[1;31mred\u001b[0m', '\u001b[1;31mred\u001b[0m\u001b[0m'],
  ['colours that nobody ends', '\u001b[38;5;9mred', '\u001b[38;5;9mred\u001b[0m'],
  ['a progress bar', '10%\r\u001b[K20%\r\u001b[2K30%\n', '10%\r\u001b[K20%\r\u001b[2K30%\n'],
  ['a title', 'a\u001b]0;owned\u0007b', 'ab'],
  ['the clipboard', 'a\u001b]52;c;aGFjaw==\u001b\\b', 'ab'],
  ['a link', '\u001b]8;;http://x\u001b\\text\u001b]8;;\u001b\\', 'text'],
  ['words that nobody ends', 'a\u001b]0;owned\nb\n', 'a\nb\n'],
  ['a device control string', 'a\u001bP+q544e\u001b\\b', 'ab'],
  ['the screen wiped, the cursor moved', 'a\u001b[2J\u001b[1;1H\u001b[Ab', 'ab'],
  ['a question that the terminal answers', 'a\u001b[6n\u001b[c\u001b[>qb', 'ab'],
  ['modes', 'a\u001b[?1049h\u001b[?25l\u001bcb', 'ab'],
  ['another set of characters', 'a\u001b(0b', 'ab'],
  ['the same in one character each', 'a\u009b2Jb\u009d0;x\u0007c\u0090q\u001b\\d', 'abcd'],
  ['other control characters', 'a\u0007\u0000\u000e\u007fb', 'ab'],
  ['a sequence cut by a line', 'a\u001b[31\nb', 'a\nb'],
  ['a sequence without end', `a\u001b[${'1;'.repeat(99)}mb`, expect.not.stringContaining('\u001b')],
];

describe('what a job prints', () => {
  test.each(CASES)('%s: what reaches a terminal is harmless', (_, from, to) => {
    expect(safe(from)).toEqual(to);
    // wherever it is cut
    for (const cut of [1, 2, 3, 7]) expect(safe(from, true, cut)).toEqual(to);
  });

  test('is never more than text, colours and wiped lines, and is the same however it is cut', () => {
    const parts = [
      '\u001b',
      '[',
      ']',
      '0',
      ';',
      'm',
      'J',
      'K',
      '\u0007',
      '\\',
      '\n',
      '\r',
      'P',
      '\u009b',
      '\u009d',
      'é',
      'x',
      '?',
      '(',
    ];
    const texts = fc.array(fc.constantFrom(...parts), { maxLength: 60 }).map((drawn) => drawn.join(''));
    const holds = (text: string, cut: number): void => {
      const whole = safe(text);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
      const rest = whole.replace(/\u001b\[[\d;:]*m|\u001b\[[012]?K/g, '');
      expect(rest).not.toMatch(/(?![\t\n\r])\p{Cc}/u);
      expect(safe(text, true, cut)).toBe(whole);
      expect(plainText(text)).not.toMatch(/(?![\t\n])\p{Cc}/u);
    };
    fc.assert(fc.property(texts, fc.integer({ min: 1, max: 5 }), holds), { numRuns: 2000 });
  });

  test('in a record is plain text all through', () => {
    const record = { name: '\u001b[31mred\u001b[0m', at: 5, more: [{ evidence: 'a\rb\u202ec' }, null], '\u0007': true };
    expect(plain(record)).toEqual({ name: 'red', at: 5, more: [{ evidence: 'a b\ufffdc' }, null], '': true });
  });
});
