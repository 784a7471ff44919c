import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const cases = fileURLToPath(new URL('./cases', import.meta.url));
/** The oldest torch that is supported, Debian's; and a current one with the frameworks, where set-up could install it. */
const interpreters = [
  process.env.OOMTUNE_TEST_PYTHON ?? '/usr/bin/python3',
  process.env.OOMTUNE_TEST_FRAMEWORKS ?? '',
].filter((path) => path !== '');
if (interpreters.length === 1) {
  process.stderr.write('SKIPPED: the hook under a current torch, as OOMTUNE_TEST_FRAMEWORKS names no interpreter\n');
}

describe.each(interpreters)('the python hook under %s', (interpreter) => {
  for (const file of readdirSync(cases).filter((name) => /^test_\w+\.py$/.test(name))) {
    it(file.replace(/^test_(\w+)\.py$/, '$1'), () => {
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
    }, 480_000);
  }
});
