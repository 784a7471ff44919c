import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { findBatchReport } from '../../src/contract/reports.js';
import { verbDocuments } from '../../src/contract/verbs.js';
import { Oomtune, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const LENGTHS = join(ROOT, 'test', 'fixtures', 'worker', 'lengths.py');
const IMAGES = join(ROOT, 'test', 'fixtures', 'worker', 'images.py');
const ON = ['--device', 'cpu', '--budget', '120MiB'];
const WORDS = ['--', PYTHON, LENGTHS, '--seq-len', '{seq_len}'];

const find = async (...args: string[]) => findBatchReport.parse(await oomtune.json(['find-batch', ...ON, ...args]));

describe('find-batch --knob', () => {
  it('finds the longest sequence in at most 7 forks of one launch, larger ones do not fit, and run takes the recorded value', async () => {
    const refused = await oomtune.call(['run', ...ON, '--name', 'text', ...WORDS]);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain('find-batch --knob seq_len={seq_len}');

    const report = await find('--name', 'text', '--knob', 'seq_len={seq_len}', ...WORDS);
    const { knob, config, apply } = report;
    if (knob === undefined || config === null || apply === null) throw new Error(JSON.stringify(report));
    expect(report.key).toBe('text:cpu:120m:1x:seq_len');
    expect(knob).toMatchObject({ name: 'seq_len', bounded_by: 'memory' });
    expect(config).toMatchObject({ micro_batch: 1, knob: { name: 'seq_len', value: knob.value } });
    expect(knob.value).toBeLessThanOrEqual(knob.max);
    expect(report.launches).toBe(1);
    expect(report.probes.length).toBeLessThanOrEqual(7);
    const ran = report.probes.filter((one) => one.outcome === 'fit').map((one) => one.knob?.value);
    expect(ran).toEqual(expect.arrayContaining([knob.value, knob.max]));
    expect(apply.argv.slice(-2)).toEqual(['--seq-len', String(knob.value)]);
    expect(apply.env.OOMTUNE_KNOB_SEQ_LEN).toBe(String(knob.value));

    const beyond = String(Math.ceil(1.06 * knob.max));
    const above = await oomtune.call(['run', '--no-tune', ...ON, '--', PYTHON, LENGTHS, '--seq-len', beyond]);
    expect([above.code, above.stderr]).toEqual([1, expect.stringContaining('device_oom')]);

    const run = await oomtune.call(['run', ...ON, '--name', 'text', ...WORDS]);
    expect(run.stderr).toContain(`{seq_len} is ${knob.value}, as recorded in ${report.key}`);
    expect([run.code, run.stdout]).toEqual([0, expect.stringContaining(`trained at ${knob.value}`)]);

    const { recommendations } = verbDocuments.recommend.parse(await oomtune.json(['recommend', 'text']));
    expect(recommendations.find((one) => one.key === report.key)?.knob).toEqual(knob);
    expect((await oomtune.call(['recommend', report.key])).stdout).toContain(`seq_len ${knob.max}`);
    const applied = await oomtune.call(['recommend', 'text', '--apply', ...WORDS]);
    expect(applied.stdout).toContain(`--seq-len ${knob.value}`);
  });

  it('tells where the script ends from where the memory does', async () => {
    const report = await find('--knob', 'seq_len', ...WORDS, '--positions', '128');
    expect(report.knob).toMatchObject({ bounded_by: 'script', max: 128, value: 128 });
    expect(report.knob?.evidence).toContain('index out of range');
    expect(report.launches).toBeLessThanOrEqual(7);
    expect(report.notes.join()).toContain('The script itself ends at seq_len 128');
  });

  it('keeps to multiples, and to what the options allow', async () => {
    const bounds = ['--knob-min', '30', '--knob-max', '200', '--knob-multiple-of', '48'];
    const report = await find('--knob', 'size', ...bounds, '--', PYTHON, IMAGES, '--size', '{size}');
    expect(report.knob).toMatchObject({ max: 192, bounded_by: 'options', multiple_of: 48 });
    expect(report.config?.micro_batch).toBe(2);
    expect(report.probes.every(({ knob }) => (knob?.value ?? 1) % 48 === 0)).toBe(true);
  });

  it.each([
    [['--knob', 'micro-batches'], 'too near to a placeholder'],
    [['--knob', 'a={b}'], 'its place in the command'],
    [['--knob-min', '3'], 'bound a --knob'],
    [['--knob', 'n', '--knob-min', '9', '--knob-max', '15', '--knob-multiple-of', '8'], 'No value lies between'],
  ])('refuses %j', async (args, says) => {
    const { code, stderr } = await oomtune.call(['find-batch', ...args, '--', 'true', '{n}']);
    expect([code, stderr]).toEqual([2, expect.stringContaining(says)]);
  });

  it('refuses a command that takes no such value', async () => {
    const { code, stderr } = await oomtune.call(['find-batch', ...ON, '--knob', 'seq_len', '--', PYTHON, LENGTHS]);
    expect([code, stderr]).toEqual([2, expect.stringContaining('Put {seq_len} where its value goes')]);
  });
});
