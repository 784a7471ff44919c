import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
import { freshDir, launchSpec, PYTHON } from './helpers.js';

const runtime = createRuntime();
const log = (dir: string) => readFileSync(join(dir, 'log'), 'utf8');

async function run(argv: string[], more = {}) {
  const spec = launchSpec(argv, more);
  const started = await runtime.launch(spec);
  const exit = await started.wait();
  return { dir: spec.dir, run: started, exit, log: log(spec.dir) };
}

describe('a launch', () => {
  test('passes argv and the environment on as they stand, and nothing else', async () => {
    const script = 'import os, sys, json; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))';
    const odd = ['$HOME', '; echo no', "it's", 'a b', '', 'ünï', 'new\nline'];
    const { exit, log, dir } = await run([PYTHON, '-c', script, ...odd], {
      env: { PATH: '/usr/bin:/bin', ODD: 'a=b c\n$(d)', EMPTY: '' },
    });
    expect(exit).toMatchObject({ code: 0, signal: null, ended_by: 'job', error: null, stragglers: 0 });
    const [argv, env] = JSON.parse(log);
    expect(argv).toEqual(odd);
    expect(env).toMatchObject({ PATH: '/usr/bin:/bin', ODD: 'a=b c\n$(d)', EMPTY: '', OOMTUNE_JOB_ID: 'j-test' });
    const known = ['PATH', 'ODD', 'EMPTY', 'LD_PRELOAD', 'MKL_DISABLE_FAST_MM', 'CUDA_VISIBLE_DEVICES', 'LC_CTYPE'];
    const names = Object.keys(env).filter((name) => !name.startsWith('OOMTUNE_') && !known.includes(name));
    expect(names).toEqual([]);
    expect(env.OOMTUNE_LEDGER).toBe(join(dir, 'ledger'));
  });

  test('leaves private files', async () => {
    const { dir } = await run(['true']);
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    expect(readdirSync(dir), 'the environment stays on no disk').not.toContain('spec');
    for (const file of ['log', 'ledger', 'exit.json', 'supervisor.json']) {
      expect(statSync(join(dir, file)).mode & 0o777, file).toBe(0o600);
    }
  });

  test('tells the exit code', async () => {
    expect((await run(['sh', '-c', 'exit 42'])).exit).toMatchObject({ code: 42, signal: null, ended_by: 'job' });
  });

  test('keeps its time though the clock is set on meanwhile', async () => {
    const started = await runtime.launch(launchSpec(['sleep', '3'], { timeoutSeconds: 60 }));
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2 * 3600_000 });
    const exit = await started.wait().finally(() => vi.useRealTimers());
    expect(exit).toMatchObject({ code: 0, ended_by: 'job' });
  });

  test('tells the signal', async () => {
    const { exit } = await run(['sh', '-c', 'kill -SEGV $$']);
    expect(exit).toMatchObject({ code: null, signal: 'SIGSEGV', ended_by: 'job', host_oom: false });
  });

  test('that cannot be started because the command is missing leaves nothing behind', async () => {
    const dir = freshDir();
    await expect(runtime.launch(launchSpec(['no-such-command'], { dir }))).rejects.toMatchObject({
      code: 'OOMTUNE_COMMAND_MISSING',
    });
    await expect(runtime.launch(launchSpec(['/etc/passwd'], { dir }))).rejects.toMatchObject({
      code: 'OOMTUNE_COMMAND_MISSING',
    });
    const script = `${dir}.sh`;
    writeFileSync(script, 'echo no interpreter is named\n', { mode: 0o700 });
    await expect(runtime.launch(launchSpec([script], { dir }))).rejects.toMatchObject({
      code: 'OOMTUNE_COMMAND_MISSING',
      message: expect.stringContaining('Exec format error'),
    });
    expect(existsSync(dir)).toBe(false);
  });

  test('refuses a folder that was used before', async () => {
    const { dir } = await run(['true']);
    await expect(runtime.launch(launchSpec(['true'], { dir }))).rejects.toThrow();
  });
});

describe('a budget', () => {
  const torch = `
import ctypes, torch
lib = ctypes.CDLL(None)
for name in ("oomtune_live", "oomtune_peak", "oomtune_budget"):
    getattr(lib, name).restype = ctypes.c_uint64
    getattr(lib, name).argtypes = [ctypes.c_int]
lib.oomtune_refused.restype = ctypes.c_uint64
before = lib.oomtune_live(-1)
kept = torch.zeros(10 << 20)
assert lib.oomtune_live(-1) - before == 40 << 20, lib.oomtune_live(-1) - before
assert lib.oomtune_budget(-1) == 200 << 20
try:
    torch.zeros(100 << 20)
except RuntimeError as error:
    print(error)
assert lib.oomtune_refused() == 1
peak = lib.oomtune_peak(-1)
del kept
assert lib.oomtune_peak(-1) == peak
lib.oomtune_reset_peak(-1)
assert lib.oomtune_peak(-1) == lib.oomtune_live(-1) == before
torch.zeros(30 << 20)
print("recovered")
`;

  test('makes torch raise its own out-of-memory error, from which it recovers, and records the refusal', async () => {
    const { exit, log } = await run([PYTHON, '-c', torch], { budgetBytes: 200 * 1024 ** 2 });
    expect(log).toContain(
      "DefaultCPUAllocator: can't allocate memory: you tried to allocate 419430400 bytes. Error code 12",
    );
    expect(log).toContain('recovered');
    expect(exit.code).toBe(0);
    const ledger = exit.ledger;
    expect(ledger).toMatchObject({ refused: 1, blind: false });
    expect(ledger?.refusals).toMatchObject([
      { api: 'posix_memalign', size_bytes: 419430400, budget_bytes: 200 * 1024 ** 2, by: 'budget', device: 'cpu' },
    ]);
    expect(ledger?.devices).toMatchObject([{ device: 'cpu', live_bytes: 0, budget_bytes: 200 * 1024 ** 2 }]);
    expect(ledger?.devices[0]?.peak_bytes).toBeGreaterThan(120 * 1024 ** 2);
    expect(ledger?.devices[0]?.peak_bytes).toBeLessThanOrEqual(200 * 1024 ** 2);
  });

  test('gives the same peak from run to run, to a MiB', async () => {
    const script = 'import torch; a = torch.randn(512, 512, requires_grad=True); (a @ a).sum().backward()';
    const first = await run([PYTHON, '-c', script]);
    const second = await run([PYTHON, '-c', script]);
    expect(first.exit.code).toBe(0);
    const peaks = [first, second].map(({ exit }) => exit.ledger?.devices[0]?.peak_bytes ?? Number.NaN) as [
      number,
      number,
    ];
    // To what threads hold at that moment: on a busy machine another one may get to a step first.
    expect(Math.abs(peaks[0] - peaks[1])).toBeLessThan(2 ** 20);
  });

  test('is null in the reading when nothing was loaded into the job', async () => {
    expect((await run(['true'])).exit.ledger).toBeNull();
  });
});
