import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const cases = fileURLToPath(new URL('./cases', import.meta.url));

/** The oldest torch that is supported, Debian's, and a current one with the frameworks themselves, where set-up could install them. */
const INTERPRETERS = {
  'the oldest torch': process.env.OOMTUNE_TEST_PYTHON ?? '/usr/bin/python3',
  'a current torch': process.env.OOMTUNE_TEST_FRAMEWORKS ?? '',
};

/** Parts of about the same length, as files of tests run side by side; what none of them names is the rest's. */
const PARTS: Record<string, RegExp> = {
  cut: /^test_(cut\w*|loaderless)\.py$/,
  probe: /^test_(probe|knobs|memory_breakdown|growing_variables)\.py$/,
  starts: /^test_(inject|training_frameworks|ranks|shards)\.py$/,
  lives: /^test_lives\.py$/,
};

function files(part: string): string[] {
  const named = Object.values(PARTS);
  return readdirSync(cases)
    .filter((name) => /^test_\w+\.py$/.test(name))
    .filter((name) => PARTS[part]?.test(name) ?? !named.some((one) => one.test(name)));
}

/** A test for each file of Python cases of that part, under each torch. */
export function hookCases(part: string): void {
  for (const [torch, interpreter] of Object.entries(INTERPRETERS)) {
    if (interpreter === '') {
      process.stderr.write(`SKIPPED: the hook under ${torch}, as OOMTUNE_TEST_FRAMEWORKS names no interpreter\n`);
    }
    describe.skipIf(interpreter === '')(`the python hook under ${torch}`, () => {
      for (const file of files(part)) {
        it(file.replace(/^test_(\w+)\.py$/, '$1'), () => passes(interpreter, file), 600_000);
      }
    });
  }
}

function passes(interpreter: string, file: string): void {
  const done = spawnSync(interpreter, ['-m', 'unittest', '-v', file.replace(/\.py$/, '')], {
    cwd: cases,
    encoding: 'utf8',
    env: { ...process.env, OMP_NUM_THREADS: '1', PYTHONDONTWRITEBYTECODE: '1' },
  });
  // Skipped cases say why on this stream.
  const skipped = done.stderr.split('\n').filter((line) => line.includes('... skipped'));
  if (skipped.length > 0) console.log(skipped.join('\n'));
  expect(done.status, done.stderr).toBe(0);
  expect(done.stderr).toMatch(/Ran [1-9]\d* tests?/);
}
