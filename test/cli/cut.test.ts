import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { RunReport } from '../../src/contract/reports.js';
import { Oomtune, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const script = (name: string) => join(ROOT, 'test', 'fixtures', 'python', name);
const report = (name: string): RunReport => JSON.parse(readFileSync(join(oomtune.home, name), 'utf8'));

async function run(name: string, budget: string, ...options: string[]) {
  const file = `${name}${options.join('')}.json`;
  const given = ['--device', 'cpu', '--budget', budget, '--amp', 'off', '--checkpointing', 'off', '--report', file];
  const ended = await oomtune.call(['run', ...given, ...options, '--', PYTHON, script(name)]);
  return { ...ended, report: report(file) };
}

describe('a batch that does not fit', () => {
  it('is cut where the model is called: the loop, its schedule and its weights are those of the script alone', async () => {
    const alone = execFileSync(PYTHON, [script('counting.py')], { encoding: 'utf8', env: oomtune.env });
    const { code, stdout, stderr, report } = await run('counting.py', '24MiB');
    expect(code, stderr).toBe(0);
    expect(stdout).toBe(alone);
    expect(report.config).toMatchObject({ effective_batch: 2048 });
    expect(report.config?.accumulation).toBeGreaterThan(1);
    const why = 'the loop sees its own batches only';
    expect(report.cut).toEqual({ cut: 'model', why });
    expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(24 * 1024 ** 2);

    expect((await oomtune.call(['explain', report.key ?? ''])).stdout).toContain(
      "Batches were cut at the model's call.",
    );
    expect(await oomtune.json(['recommend', report.key ?? ''])).toMatchObject({ recommendations: [{ cut: 'model' }] });

    // A submitted job with that record says it of itself.
    await oomtune.call(['daemon', 'start']);
    const given = ['--device', 'cpu', '--budget', '24MiB', '--amp', 'off', '--checkpointing', 'off'];
    const command = ['--', PYTHON, script('counting.py')];
    const { job } = (await oomtune.json(['submit', ...given, ...command])) as { job: string };
    expect((await oomtune.call(['wait', job])).code).toBe(0);
    expect(await oomtune.json(['status', job])).toMatchObject({ jobs: [{ cut: { cut: 'model', why } }] });
    expect((await oomtune.call(['explain', job])).stdout).toContain(
      `Its batches were cut at the model's call: ${why}.`,
    );
    expect((await oomtune.call(['logs', job])).stdout).toBe(alone);
  });

  it('ends without an answer where the outputs of the whole batch are what does not fit, and names the option', async () => {
    const { code, stdout, stderr } = await run('speaking.py', '60MiB');
    expect(code).toBe(3);
    expect(stdout).toBe('');
    expect(stderr).toContain('Nothing fits');
    expect(stderr).toContain('--cut loader needs less where the outputs of the whole batch are what does not fit');
    const allowed = await run('speaking.py', '60MiB', '--cut', 'loader');
    expect(allowed.code, allowed.stderr).toBe(0);
    expect(allowed.stdout).toBe('trained\n');
    expect(allowed.report.cut).toEqual({ cut: 'loader', why: 'asked for with --cut' });
  });

  it('is not trained on where its samples depend on each other', async () => {
    const { code, stdout, stderr } = await run('centring.py', '17MiB');
    expect(code).toBe(1);
    expect(stdout).toBe('');
    expect(stderr).toContain('depends on the other samples of the batch');
    expect(stderr).toContain('--cut loader cuts the batches of the DataLoader instead');
    const allowed = await run('centring.py', '17MiB', '--cut', 'loader');
    expect(allowed.code, allowed.stderr).toBe(0);
    expect(allowed.report.cut?.cut).toBe('loader');
  });
});
