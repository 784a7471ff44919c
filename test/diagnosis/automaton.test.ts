import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Automaton } from '../../src/worker/diagnosis/automaton.js';
import { canonical } from '../../src/worker/diagnosis/canonical.js';

const literal = fc.stringMatching(/^[abc]{1,5}$/);
/** Text in which the literals are likely, with blanks anywhere. */
const text = fc
  .array(fc.constantFrom('a', 'b', 'c', 'A', 'B', ' ', '\n', 'x'), { maxLength: 300 })
  .map((a) => a.join(''));

function everyEnd(haystack: string, literals: readonly string[]): string[] {
  const found: string[] = [];
  literals.forEach((needle, id) => {
    for (let at = haystack.indexOf(needle); at >= 0; at = haystack.indexOf(needle, at + 1)) {
      found.push(`${at + needle.length}:${id}`);
    }
  });
  return found.sort();
}

describe('the automaton', () => {
  it('finds every literal that a plain search finds, in canonical text', () => {
    fc.assert(
      fc.property(fc.uniqueArray(literal, { minLength: 1, maxLength: 8 }), text, (literals, input) => {
        const found: string[] = [];
        new Automaton(literals).walk(canonical(input), 0, (id, end) => found.push(`${end}:${id}`));
        expect(found.sort()).toEqual(everyEnd(canonical(input), literals));
      }),
    );
  });

  it('finds the first literal in bytes, across blanks and whatever the cuts between calls', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(literal, { minLength: 1, maxLength: 4 }),
        text,
        fc.integer({ min: 1, max: 40 }),
        fc.constantFrom(0, 4100, 9000),
        (literals, input, size, padding) => {
          // Enough dull text before it that several strides are walked at once.
          const bytes = Buffer.from(`${'. '.repeat(padding / 2)}${input}`);
          const automaton = new Automaton(literals);
          const ends = everyEnd(canonical(bytes.toString()), literals).map((end) => Number(end.split(':')[0]));
          const cursor = { state: 0, literal: 0, near: false };
          let hit = -1;
          for (let at = 0; at < bytes.length && hit < 0; at += size + padding) {
            hit = automaton.find(bytes, at, Math.min(bytes.length, at + size + padding), cursor);
          }
          const seen = hit < 0 ? null : canonical(bytes.subarray(0, hit).toString()).length;
          expect(seen).toBe(ends.length === 0 ? null : Math.min(...ends));
        },
      ),
      { numRuns: 300 },
    );
  });

  it('sees a literal that lies over the edge of a stride or of its parts', () => {
    const automaton = new Automaton(['needleinthehay']);
    for (const at of [1000, 1015, 1020, 1024, 2040, 3070, 4085, 4090, 4096, 8190]) {
      const bytes = Buffer.alloc(20_000, 'x');
      bytes.write('Needle  in\nthe HAY', at);
      const cursor = { state: 0, literal: 0, near: false };
      expect(automaton.find(bytes, 0, bytes.length, cursor)).toBe(at + 18);
    }
  });

  it('refuses a literal that is not canonical', () => {
    expect(() => new Automaton(['two words'])).toThrow(RangeError);
  });
});
