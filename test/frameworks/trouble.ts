import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oomtune, ROOT } from '../cli/oomtune.js';

/** An interpreter with the real packages; empty: they could not be installed, or were not asked for. */
const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (python === '') {
  process.stderr.write(
    'SKIPPED: trouble beside training, as OOMTUNE_TEST_FRAMEWORKS names no interpreter with packages\n',
  );
}

/** Where memory runs out, as trouble/sitecustomize.py brings about, and what has to be told of it. */
const TOLD = {
  evaluation: { reason: 'eval', phase: 'eval', advice: 'per_device_eval_batch_size' },
  saving: { reason: 'save', phase: 'save', advice: 'in parts' },
  worker: { reason: 'worker', advice: 'num_workers' },
  training: { reason: 'batch', phase: 'train', advice: 'smaller micro-batch' },
};
type How = keyof typeof TOLD;
const BESIDE: How[] = ['evaluation', 'saving', 'worker'];

interface Training {
  of: string;
  script: string;
  /** The console script that is started in place of `script`; `script`_data.py, if there is one, makes what it reads. */
  console?: string;
  args?: string;
  /** Batches of its own are less than three a pass: a worker runs out of memory in the third. */
  batch?: number;
  /** Where it is asked; else at each place beside the training. */
  only?: How[];
}

/** Holds for each of `trainings`, unmodified scripts: memory that runs out in the framework's own evaluation, saving or workers is told as that. */
export function tellsTroubleOf(trainings: Training[]): void {
  describe.skipIf(python === '').each(trainings)('$of that runs out of memory', (training) => {
    const { script, console: program, args = '', batch, only = BESIDE } = training;
    const oomtune = new Oomtune();
    const cwd = mkdtempSync(join(tmpdir(), 'oomtune-trouble-'));
    const started = program === undefined ? [python, `${script}.py`] : [join(dirname(python), program)];
    const command = [...started, ...args.split(' ').filter(Boolean)];
    const env = {
      HF_HUB_OFFLINE: '1',
      TOKENIZERS_PARALLELISM: 'false',
      YOLO_OFFLINE: 'true',
      YOLO_CONFIG_DIR: oomtune.home,
      PYTHONPATH: [join(ROOT, 'test', 'frameworks', 'trouble'), join(ROOT, 'python')].join(delimiter),
      ...(batch === undefined ? {} : { BATCH: String(batch) }),
    };

    beforeAll(() => {
      cpSync(join(ROOT, 'test', 'frameworks', 'scripts'), cwd, { recursive: true });
      if (existsSync(join(cwd, `${script}_data.py`))) execFileSync(python, [`${script}_data.py`], { cwd });
    });

    afterAll(async () => {
      await oomtune.close();
      rmSync(cwd, { recursive: true, force: true });
    });

    it.each(only)('in %s is told so', async (how) => {
      const { advice, ...told } = TOLD[how];
      const options = ['--no-tune', '--device', 'cpu', '--budget', '512MiB', '--report', 'report.json'];
      const { code, stderr } = await oomtune.call(['run', ...options, '--', ...command], {
        cwd,
        env: { ...env, TROUBLE: how },
      });
      expect(code, stderr).toBe(1);
      const { failure } = JSON.parse(readFileSync(join(cwd, 'report.json'), 'utf8'));
      expect(failure, stderr).toMatchObject({ class: 'device_oom', ...told });
      expect(failure.advice).toContain(advice);
    });
  });
}
