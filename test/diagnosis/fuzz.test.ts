import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Diagnosis } from '../../src/contract/diagnosis.js';
import { diagnose, renderDiagnosis } from '../../src/worker/diagnosis/index.js';
import { CORPUS, expectedFields, judgeCase } from './corpus.js';

const CLASSES = new Set(
  'device_oom host_oom shm disk_full network device_fault user_error timeout killed cancelled ok'.split(' '),
);

/** Whatever the log, a diagnosis keeps its form. */
function expectWhole(diagnosis: Diagnosis): void {
  expect(CLASSES.has(diagnosis.class)).toBe(true);
  expect(typeof diagnosis.certain).toBe('boolean');
  expect(diagnosis.line === null || (Number.isInteger(diagnosis.line) && diagnosis.line >= 1)).toBe(true);
  for (const value of Object.values(diagnosis.fields)) {
    expect(value === null || (Number.isSafeInteger(value) && value >= 0)).toBe(true);
  }
  expect(diagnosis.cause).not.toBe('');
  expect(JSON.parse(JSON.stringify(diagnosis))).toEqual(diagnosis);
  expect(renderDiagnosis(diagnosis, { color: false, width: 80 })).not.toContain('\u001b');
}

const pieces = CORPUS.flatMap(({ log }) => log.toString('utf8').split('\n')).filter((line) => line.length > 20);
const fragment = fc.oneof(
  fc.constantFrom(...pieces),
  fc.constantFrom(
    '\r',
    '\n',
    '\r\n',
    '\0',
    '\u001b[31m',
    '\u001b]0;',
    '[rank1]: ',
    '│ ',
    '{"log":"',
    '"}',
    '  File "',
    ', line 3, in f\n',
  ),
  fc.string({ maxLength: 40 }),
  fc.tuple(fc.constantFrom(...pieces), fc.nat(200)).map(([line, at]) => line.slice(0, at)),
);

describe('a log that nobody wrote', () => {
  it('made of fragments is judged without failing', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fragment, { maxLength: 60 }),
        fc.option(fc.integer({ min: -20, max: 260 }), { nil: null }),
        fc.constantFrom(null, 'SIGKILL', 'SIGTERM', '11', 'nonsense'),
        async (parts, exitCode, signal) => {
          const log = Buffer.from(parts.join(''));
          const diagnosis = await diagnose({ log: [log], exitCode, signal });
          expectWhole(diagnosis);
          // Only Kubernetes knows better than exit status 0.
          if (exitCode === 0 && signal === null && !/OOMKilled/i.test(log.toString())) {
            expect(diagnosis.class).toBe('ok');
          }
        },
      ),
      { numRuns: 400 },
    );
  });

  it('made of bytes is judged without failing, however it is cut into chunks', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 4000 }), fc.integer({ min: 1, max: 700 }), async (bytes, size) => {
        const chunks: Uint8Array[] = [];
        for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
        expectWhole(await diagnose({ log: chunks, exitCode: 1 }));
      }),
      { numRuns: 200 },
    );
  });
});

describe('a log of the corpus', () => {
  it('with bytes changed, dropped or doubled is judged without failing', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...CORPUS),
        fc.array(fc.tuple(fc.nat(), fc.nat(255), fc.constantFrom('set', 'drop', 'double')), { maxLength: 30 }),
        async ({ expected, log }, changes) => {
          const bytes = [...log.subarray(0, 20_000)];
          for (const [place, value, how] of changes) {
            const at = place % Math.max(1, bytes.length);
            if (how === 'set') bytes[at] = value;
            else if (how === 'drop') bytes.splice(at, value % 50);
            else bytes.splice(at, 0, ...bytes.slice(at, at + (value % 50)));
          }
          expectWhole(await judgeCase(expected, Buffer.from(bytes)));
        },
      ),
      { numRuns: 600 },
    );
  });

  it('comes out the same however it is cut into chunks', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...CORPUS),
        fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 20 }),
        async ({ expected, log }, sizes) => {
          const chunks: Buffer[] = [];
          for (let at = 0, i = 0; at < log.length; i++) {
            const size = sizes[i % sizes.length] as number;
            chunks.push(log.subarray(at, at + size));
            at += size;
          }
          const whole = await judgeCase(expected, log);
          expect(await judgeCase(expected, log, { log: chunks })).toEqual(whole);
        },
      ),
      { numRuns: 300 },
    );
  });

  const CUT = CORPUS.filter(({ name }) =>
    /^(torch-2.5-fragmented|torch-1.7-reserved|wrap-hard-80|cupy-oom|nccl-calloc|jax-cuda-bfc|gpu-malloc-async)$/.test(
      name,
    ),
  );

  it.each(CUT)('$name, cut off at any byte, gives no figure that was not there', async ({ expected, log }) => {
    const figures = expectedFields(expected);
    for (let end = 0; end <= log.length; end++) {
      const diagnosis = await judgeCase(expected, log.subarray(0, end));
      expectWhole(diagnosis);
      if (!figures) continue;
      for (const [name, value] of Object.entries(diagnosis.fields)) {
        const wanted = figures[name as keyof typeof figures];
        // An allocator rounds what its messages say beforehand.
        const near = value !== null && wanted !== null && Math.abs(value - wanted) <= wanted / 100;
        expect(value === null || near, `${name} ${value} at byte ${end}`).toBe(true);
      }
    }
  });
});
