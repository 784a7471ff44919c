import { statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
import { launchSpec, PYTHON } from './helpers.js';

const HOLDS = 'x = bytearray(8 << 20)';

test.each([
  ['cut short', 'os.truncate(at, 0)'],
  ['made shorter by a page', 'os.truncate(at, os.path.getsize(at) - 4096)'],
  ['cut short and made as long again', 'size = os.path.getsize(at); os.truncate(at, 0); os.truncate(at, size)'],
  ['replaced by a pipe', 'os.unlink(at); os.mkfifo(at)'],
  ['replaced by a device', 'os.unlink(at); os.symlink("/dev/zero", at)'],
])('a job whose ledger it has %s runs to its end under its supervisor', async (_, change) => {
  const script = `
import os, subprocess, time
at = os.environ["OOMTUNE_LEDGER"]
env = {"PATH": os.environ["PATH"]}
# What is loaded into this process would die of it: another one does it, which has nothing of it
if os.fork() == 0:
    os.execve("${PYTHON}", ["${PYTHON}", "-c", """
import os, time
at = '%s'
${change.replaceAll('"', "'")}
time.sleep(2.5)
""" % at], env)
os.execve("/bin/sleep", ["sleep", "2"], env)
`;
  const runtime = createRuntime();
  const spec = launchSpec([PYTHON, '-c', script], { devices: ['cpu'], budgetBytes: 1 << 30 });
  const run = await runtime.launch(spec);
  const looks = setInterval(() => run.ledger(), 10);
  const exit = await run.wait();
  clearInterval(looks);
  expect(exit).toMatchObject({ code: 0, signal: null, ended_by: 'job' });
});

test('a ledger takes little of the disk once its job has ended', async () => {
  const spec = launchSpec([PYTHON, '-c', HOLDS], { devices: ['cpu'], budgetBytes: 1 << 30 });
  const exit = await (await createRuntime().launch(spec)).wait();
  expect(exit.ledger?.devices[0]?.peak_bytes).toBeGreaterThanOrEqual(8 << 20);
  expect(statSync(join(spec.dir, 'ledger')).blocks * 512).toBeLessThan(64 << 10);
});

test('a job that puts a folder where its end is to be recorded ends all the same', async () => {
  const script = 'import os; os.makedirs(os.path.join(os.environ["OOMTUNE_RUN_DIR"], "exit.json", "in it"))';
  const run = await createRuntime().launch(launchSpec([PYTHON, '-c', script]));
  expect(await run.wait()).toMatchObject({ code: 0, ended_by: 'job' });
});
