import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune, ROOT } from '../cli/oomtune.js';
import { QUICK_END } from '../common/quick-end.js';

/** Notebooks, tuners and trackers themselves, with the frameworks beside them on the path, where set-up could install both. */
const interpreter = process.env.OOMTUNE_TEST_INTEGRATIONS ?? '';
const frameworks = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
const missing = interpreter === '' || frameworks === '';
if (missing) {
  const names = 'OOMTUNE_TEST_INTEGRATIONS and OOMTUNE_TEST_FRAMEWORKS';
  process.stderr.write(`SKIPPED: notebooks, tuners and trackers, as ${names} do not name an interpreter each\n`);
}

const cases = fileURLToPath(new URL('./integrations', import.meta.url));

describe.skipIf(missing)('the Python package with the libraries themselves', () => {
  const oomtune = new Oomtune();
  afterAll(() => oomtune.close());

  for (const file of readdirSync(cases).filter((name) => /^test_\w+\.py$/.test(name))) {
    it(file.replace(/^test_(\w+)\.py$/, '$1'), async () => {
      const where = 'import sysconfig; print(sysconfig.get_path("purelib"))';
      const site = (await python(frameworks, ['-c', where], oomtune.env, cases)).stdout.trim();
      const env = {
        ...oomtune.env,
        PATH: `${dirname(process.execPath)}:${oomtune.env.PATH}`,
        PYTHONPATH: [join(ROOT, 'python'), cases, QUICK_END, site].join(':'),
        PYTHONDONTWRITEBYTECODE: '1',
        WANDB_MODE: 'offline',
        HF_HUB_OFFLINE: '1',
      };
      const done = await python(interpreter, ['-m', 'unittest', '-v', file.replace(/\.py$/, '')], env, oomtune.home);
      const skipped = done.stderr.split('\n').filter((line) => line.includes('... skipped'));
      if (skipped.length > 0) console.log(skipped.join('\n'));
      expect(done.code, done.stdout + done.stderr).toBe(0);
      expect(done.stderr).toMatch(/Ran [1-9]\d* tests?/);
    }, 600_000);
  }
});

async function python(path: string, args: string[], env: NodeJS.ProcessEnv, cwd: string) {
  const child = spawn(path, args, { cwd, env: { ...env, PWD: cwd } });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  return { code, stdout, stderr };
}
