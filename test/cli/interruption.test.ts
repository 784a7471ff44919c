import { spawnSync } from 'node:child_process';
import { setImmediate } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
import { Interruption } from '../../src/cli/interruption.js';
import { createOutput } from '../../src/cli/output.js';
import { Oomtune, PROGRAM, PYTHON } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

/** Runs a command in a terminal of its own, closes that when the command has printed the first word, and prints how the command ended. */
const TERMINAL = `
import os, pty, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
seen = b""
while sys.argv[1].encode() not in seen:
    seen += os.read(terminal, 4096)
os.close(terminal)
_, status = os.waitpid(child, 0)
print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
`;

it('may be waited for by as many as there are jobs, without a warning of Node on stderr', async () => {
  const warnings: string[] = [];
  const note = ({ name }: Error) => warnings.push(name);
  process.on('warning', note);
  const interruption = new Interruption(createOutput(false));
  try {
    for (let job = 0; job < 20; job += 1) interruption.signal.addEventListener('abort', () => {});
    await setImmediate();
    expect(warnings).toEqual([]);
  } finally {
    interruption.close();
    process.off('warning', note);
  }
});

it.each([
  ['run', 'go', ['run', '--no-tune', '--device', 'cpu', '--', 'sh', '-c', 'while echo g""o; do sleep 0.05; done']],
  ['status --watch', 'No jobs', ['status', '--watch']],
])('%s ends with the code of a hangup when its terminal is closed', (_, printed, args) => {
  const { status, stdout, stderr } = spawnSync(PYTHON, ['-c', TERMINAL, printed, PROGRAM, ...args], {
    env: oomtune.env,
  });
  expect([status, stdout.toString().trim(), stderr.toString()]).toEqual([0, '129', '']);
});
