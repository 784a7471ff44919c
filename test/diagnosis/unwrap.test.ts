import { describe, expect, it } from 'vitest';
import { readForms, wholeLog } from '../../bench/diagnose/corpus.mjs';
import { diagnose } from '../../src/worker/diagnosis/index.js';

const FORMS = readForms().map((form) => ({ form, log: wholeLog(form, () => 0.5) }));

/** As a terminal of so many columns shows it, and as it is copied from there. */
function wrapped(log: string, columns: number, before: (line: string) => string = (line) => line): string {
  return log
    .split('\n')
    .map((line) => (line === '' ? line : before(line)).replace(new RegExp(`(.{${columns}})(?=.)`, 'g'), '$1\n'))
    .join('\n');
}

async function judged(log: string, exitCode: number | null = 1) {
  return diagnose({ log: [Buffer.from(log)], ...(exitCode === null ? {} : { exitCode }) });
}

describe.each([60, 72, 80, 100, 120, 132])('logs that a terminal of %i columns has broken', (columns) => {
  it('are judged as whole ones are', async () => {
    const wrong: string[] = [];
    for (const { form, log } of FORMS) {
      const { class: found, certain } = await judged(wrapped(log, columns), form.exit);
      if (found !== form.class) wrong.push(`${form.signature}, ${form.version}: ${found}${certain ? ', certain' : ''}`);
    }
    expect(wrong.filter((one) => one.endsWith('certain'))).toEqual([]);
    expect(wrong.length, wrong.join('\n')).toBeLessThanOrEqual(FORMS.length / 200);
  });
});

it('a rank or a time before the lines is no hindrance', async () => {
  for (const before of [(line: string) => `[rank3]: ${line}`, (line: string) => `2026-06-22T15:13:25.07Z ${line}`]) {
    const wrong: string[] = [];
    for (const { form, log } of FORMS) {
      const { class: found } = await judged(wrapped(log, 100, before), form.exit);
      if (found !== form.class) wrong.push(`${form.signature}, ${form.version}: ${found}`);
    }
    expect(wrong.length, wrong.join('\n')).toBeLessThanOrEqual(FORMS.length / 200);
  }
});

describe('lines that are as long as the longest by chance', () => {
  const full = (text: string) => text.padEnd(80, 'x');

  it('do not swallow how the job ended', async () => {
    const log = `${full('reading shard a-')}\n${full('writing block b-')}\n${full('packing index c-')}\nKilled\n`;
    expect(await judged(log, null)).toMatchObject({ class: 'killed', line: 4 });
  });

  it('do not swallow a traceback, nor records that look alike', async () => {
    const assertion = (thread: number) =>
      `../aten/src/ATen/native/cuda/Loss.cu:250: block: [0,0,0], thread: [${thread},0,0] Assertion \`t < n_classes\` failed.`;
    const raised = 'RuntimeError: CUDA error: device-side assert triggered';
    const log = `${[11, 12, 13].map(assertion).join('\n')}\nTraceback (most recent call last):\n  File "a.py", line 3, in <module>\n    step()\n${raised}\n`;
    expect(await judged(log)).toMatchObject({ class: 'device_fault' });
    const other = `${full('  0%| waiting for ')}\n${full('the first batch of')}\nTraceback (most recent call last):\n  File "a.py", line 3, in <module>\n    step()\nKeyError: 'x'\n`;
    expect(await judged(other)).toMatchObject({ class: 'user_error', evidence: "KeyError: 'x'", line: 6 });
  });
});

it('a line number counts the lines of the file, wrapped or not', async () => {
  const log = wrapped(
    `${'a'.repeat(170)}\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 24.00 GiB total capacity; 20.00 GiB already allocated; 1.00 GiB free)\n`,
    80,
  );
  expect(await judged(log)).toMatchObject({ class: 'device_oom', line: 4, fields: { tried_bytes: 2 * 1024 ** 3 } });
});

it.each([
  [
    'items of a row that failed, before others that did not',
    '[1/3] [OK] a\n[2/3] [ERROR] b is not there\n[3/3] [OK] c',
    'ok',
  ],
  ['the last item of a row that failed', '[1/3] [OK] a\n[2/3] [OK] b\n[3/3] [ERROR] c is not there', 'user_error'],
  [
    'a tracker that could not send',
    'wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)',
    'ok',
  ],
  [
    'a module that Lmod does not know',
    'Lmod has detected the following error: The following module(s) are unknown:\n"python"',
    'user_error',
  ],
  [
    'a job that HTCondor saw end well',
    '009 (1.000.000) 2026-01-14 14:34:04 Job was aborted.\n...\n005 (2.000.000) 2026-01-21 13:48:18 Job terminated.\n\tJob terminated of its own accord at 2026-01-21T13:48:18Z with exit-code 0.\n...',
    'ok',
  ],
])('%s', async (_, text, expected) => {
  expect(await judged(`epoch 1 loss 0.5\n${text}\n`, null)).toMatchObject({ class: expected });
});
