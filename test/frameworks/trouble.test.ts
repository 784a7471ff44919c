import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune, ROOT } from '../cli/oomtune.js';

/** An interpreter with the real packages; empty: they could not be installed, or were not asked for. */
const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (python === '') {
  process.stderr.write(
    'SKIPPED: trouble beside training, as OOMTUNE_TEST_FRAMEWORKS names no interpreter with packages\n',
  );
}

describe.skipIf(python === '').each([
  { of: "transformers' Trainer", script: 'hf_trouble.py', budget: '80MiB', args: [] },
  { of: 'LightningCLI', script: 'lightning_trouble.py', budget: '150MiB', args: ['fit'] },
])('$of that runs out of memory beside its training', ({ script, budget, args }) => {
  const oomtune = new Oomtune();
  const cwd = mkdtempSync(join(tmpdir(), 'oomtune-trouble-'));
  cpSync(join(ROOT, 'test', 'frameworks', 'scripts', script), join(cwd, script));

  afterAll(async () => {
    await oomtune.close();
    rmSync(cwd, { recursive: true, force: true });
  });

  it.each([
    { how: 'evaluation', reason: 'eval', phase: 'eval', advice: 'per_device_eval_batch_size' },
    { how: 'saving', reason: 'save', phase: 'save', advice: 'sharded' },
    { how: 'worker', reason: 'worker', advice: 'num_workers' },
  ])('in $how is told so', async ({ how, advice, ...told }) => {
    const options = ['--no-tune', '--device', 'cpu', '--budget', budget, '--report', 'report.json'];
    const { code, stderr } = await oomtune.call(['run', ...options, '--', python, script, how, ...args], {
      cwd,
      env: { HF_HUB_OFFLINE: '1', TOKENIZERS_PARALLELISM: 'false' },
    });
    expect(code, stderr).toBe(1);
    const { failure } = JSON.parse(readFileSync(join(cwd, 'report.json'), 'utf8'));
    expect(failure, stderr).toMatchObject({ class: 'device_oom', ...told });
    expect(failure.advice).toContain(advice);
  });
});
