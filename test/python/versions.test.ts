import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PACKAGE_ROOT } from '../../src/common/home.js';

/** What the hook has to run on. */
const VERSIONS = ['3.8', '3.9', '3.10', '3.11', '3.12', '3.13'];
/** What needs no torch: every file is compiled and imported, and a loop is sent back by what each version has for that. */
const CASES = ['test_imports', 'test_rewind', 'test_recommended', 'test_function_script', 'test_effective_batch'];

/** An interpreter of that version: one on the PATH, or pyenv's. */
function interpreter(version: string): string | null {
  const named = (process.env.PATH ?? '').split(':').map((folder) => join(folder, `python${version}`));
  const root = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  const pyenvs = existsSync(root) ? readdirSync(root).filter((name) => name.startsWith(`${version}.`)) : [];
  const found = [...named, ...pyenvs.map((name) => join(root, name, 'bin', 'python'))];
  return found.find((path) => spawnSync(path, ['-c', '']).status === 0) ?? null;
}

describe('the parts of the hook that need no torch', () => {
  for (const version of VERSIONS) {
    const python = interpreter(version);
    if (python === null) {
      process.stderr.write(
        `SKIPPED: the hook on Python ${version}, as there is none on the PATH or in pyenv (linters hold it to the syntax of 3.8)\n`,
      );
    }
    it.skipIf(python === null)(`run on Python ${version}`, () => {
      const done = spawnSync(python as string, ['-m', 'unittest', '-v', ...CASES], {
        cwd: join(PACKAGE_ROOT, 'test', 'python', 'cases'),
        encoding: 'utf8',
        env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
      });
      expect(done.status, done.stderr).toBe(0);
      expect(done.stderr).toMatch(/Ran \d{2} tests/);
    });
  }
});
