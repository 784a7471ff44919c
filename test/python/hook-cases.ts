import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const cases = fileURLToPath(new URL('./cases', import.meta.url));

/** A test for each file of Python cases, run by that interpreter. */
export function hookCases(interpreter: string): void {
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
    }, 600_000);
  }
}
