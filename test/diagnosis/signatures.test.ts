import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { diagnose } from '../../src/worker/diagnosis/index.js';
import { compileSignatures, signatures } from '../../src/worker/diagnosis/signatures.js';

const FILE = readFileSync(fileURLToPath(new URL('../../config/signatures.yaml', import.meta.url)), 'utf8');

describe('the file of signatures', () => {
  it('keeps its own rules', () => {
    expect(() => compileSignatures(FILE)).not.toThrow();
  });

  it.each([
    ['an unknown class', /class: device_oom/, 'class: memory'],
    ['an advice that is not there', /advice: smaller-batch/, 'advice: no-such'],
    ['a family of figures that is not there', /fields: \[torch, async\]/, 'fields: [torch, nothing]'],
    ['a template without a place', /tried to allocate \{size\}/, 'tried to allocate'],
    ['a consequence of nothing', /after: \[device_oom\]/, 'after: [no-such]'],
    ['a program that is not there', /program: llamacpp/, 'program: no-such'],
    ['a rank that nobody has', / {4}outranks: signal/, '    outranks: everything'],
    ['a key that nobody reads', / {4}certain: false\n/, '    certian: false\n'],
    [
      'a signature without text',
      / {4}any: No executable batch size found, reached zero\n| {4}any: "No executable batch size found, reached zero"\n/,
      '',
    ],
  ])('with %s is refused', (_, what, by) => {
    const changed = FILE.replace(what, by);
    expect(changed).not.toBe(FILE);
    expect(() => compileSignatures(changed)).toThrow();
  });

  it('has no two signatures of one name, and no advice that nothing gives', () => {
    const ids = [...FILE.matchAll(/- id: (\S+)/g)].map((match) => match[1]);
    expect(new Set(ids).size).toBe(ids.length);
    for (const text of Object.values(signatures().advice)) expect(text.length).toBeGreaterThan(9);
  });
});

/** Every text of every signature of device memory, seen as the last words of a job. */
describe('a text of the file', () => {
  const known = signatures();
  const texts = known.literals.flatMap((literal, id) =>
    (known.uses[id] ?? [])
      .filter((use) => use.start === null && use.end === null)
      .map(({ signature }) => ({ literal, signature })),
  );

  it.each(texts.filter(({ signature: s }) => s.role === 'fatal' && s.with.length === 0 && s.framed.length === 0))(
    '"$literal" is recognised',
    async ({ literal, signature }) => {
      const log = `Traceback (most recent call last):\n  File "t.py", line 1, in f\n    x()\nRuntimeError: ${literal}\n`;
      const d = await diagnose({ log: [Buffer.from(log)], exitCode: 1 });
      expect(d.class).toBe(signature.class);
    },
  );
});
