import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune, PYTHON, ROOT } from '../cli/oomtune.js';

/** Texts of 16 to 256 tokens, 64 in a batch. */
const SCRIPT = join(ROOT, 'bench/tokens/train.py');
const SIZES = ['--longest', '256', '--width', '32', '--vocabulary', '256', '--steps', '6'];

interface Trained {
  checksum: number;
  cpu_s: number;
}

describe('micro-batches counted in tokens', () => {
  const oomtune = new Oomtune();
  afterAll(() => oomtune.close());

  const trained = (stdout: string): Trained => JSON.parse(stdout.trim().split('\n').at(-1) as string);

  async function run(name: string, more: string[]) {
    const report = join(oomtune.home, `${name}.json`);
    const limits = ['--device', 'cpu', '--name', name, '--amp', 'off', '--checkpointing', 'off', '--report', report];
    const ended = await oomtune.call(['run', ...limits, ...more, '--', PYTHON, SCRIPT, ...SIZES]);
    expect(ended.code, ended.stderr).toBe(0);
    return { ...ended, report: JSON.parse(readFileSync(report, 'utf8')), trained: trained(ended.stdout) };
  }

  it('train to the weights of the whole batch, within a budget that it does not fit', async () => {
    const alone = trained(
      (await oomtune.call(['run', '--no-tune', '--device', 'cpu', '--', PYTHON, SCRIPT, ...SIZES])).stdout,
    );
    const found = await run('texts', ['--budget', '80MiB', '--micro-batch-tokens', 'auto']);
    const { config } = found.report;
    expect(config.micro_batch_tokens).toBe(256 * config.micro_batch);
    expect(config.micro_batch).toBeLessThan(64);
    expect(config.effective_batch).toBe(64);
    expect(found.stderr).not.toContain('note:');
    expect(Math.abs(found.trained.checksum / alone.checksum - 1)).toBeLessThan(1e-6);
    expect(found.report.refused).toBe(0);

    // Another run uses what was recorded, with and without the option; a limit of its own is kept.
    const [recorded] = ((await oomtune.json(['recommend', 'texts'])) as { recommendations: object[] }).recommendations;
    expect(recorded).toMatchObject({ micro_batch_tokens: config.micro_batch_tokens, cut: 'model' });
    const again = await run('texts', ['--budget', '80MiB']);
    expect(again.report.config).toEqual(config);
    expect(again.trained.checksum).toBe(found.trained.checksum);
    const limited = await run('texts', ['--budget', '80MiB', '--micro-batch-tokens', '600']);
    expect(limited.report.config).toMatchObject({ micro_batch: 2, micro_batch_tokens: 512, accumulation: 32 });
    expect((await oomtune.call(['explain', 'texts'])).stdout).toContain(`(${config.micro_batch_tokens} tokens)`);
  });

  it('are for what the hook cuts', async () => {
    const words = ['--device', 'cpu', '--budget', '80MiB', '--micro-batch-tokens', 'auto'];
    const flagged = await oomtune.call(['run', ...words, '--', PYTHON, SCRIPT, '--steps', '{micro_batch}']);
    expect(flagged).toMatchObject({ code: 2 });
    expect(flagged.stderr).toContain('OOMTUNE_NO_KNOB');
    const loader = await oomtune.call(['run', ...words, '--cut', 'loader', '--', PYTHON, SCRIPT]);
    expect(loader).toMatchObject({ code: 2 });
    expect(loader.stderr).toContain('--micro-batch-tokens cannot be had with --cut loader.');
  });
});
