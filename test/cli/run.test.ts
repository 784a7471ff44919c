import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { runReport } from './contract.js';
import { Oomtune, PROGRAM, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const PLAIN = ['run', '--no-tune', '--device', 'cpu'];
const report = (name: string) => runReport.parse(JSON.parse(readFileSync(join(oomtune.home, name), 'utf8')));

describe('run', () => {
  it("passes the job's exit code, stdout and stderr through", async () => {
    const { code, stdout, stderr } = await oomtune.call([
      ...PLAIN,
      '--',
      'sh',
      '-c',
      'echo data; echo remark >&2; exit 7',
    ]);
    expect(code).toBe(7);
    expect(stdout).toBe('data\n');
    expect(stderr).toContain('remark\n');
  });

  it('says what a job on the CPU maps by itself, which its budget does not see', async () => {
    const maps =
      'import mmap; m = mmap.mmap(-1, 800 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nfor at in range(0, 800 << 20, 4096): m[at] = 1';
    const given = ['--budget', '200MiB', '--report', 'mapped.json', '--', PYTHON, '-c', maps];
    const { code, stderr } = await oomtune.call([...PLAIN, ...given]);
    expect(code).toBe(0);
    expect(stderr).toMatch(/note: A process of the job had 8\d\d MiB in memory, of which the budget of 200 MiB saw/);
    expect(report('mapped.json').resident_bytes).toBeGreaterThan(800 * 1024 ** 2);
    const small = await oomtune.call([
      ...PLAIN,
      '--budget',
      '200MiB',
      '--report',
      'small.json',
      '--',
      PYTHON,
      '-c',
      '1',
    ]);
    expect(small.stderr).not.toContain('in memory');
    expect(report('small.json').resident_bytes).toBeLessThan(100 * 1024 ** 2);
  });

  it.each([
    ['goes on where it was started with nohup', 'a file', 'succeeded', 0],
    ['ends with its job otherwise', 'a pipe', 'cancelled', 129],
  ])('%s when its terminal goes away', async (_, output, outcome, code) => {
    const file = `${outcome}.json`;
    const begun = join(oomtune.home, `${outcome}.begun`);
    const job = `touch ${begun}; sleep ${code === 0 ? 3 : 600}`;
    const words = 'nohup "$0" "$@" > nohup.log 2>&1 & echo $! > pid; wait $!';
    const args = [...PLAIN, '--report', file, '--', 'sh', '-c', job];
    const ended =
      output === 'a file'
        ? spawn('sh', ['-c', words, PROGRAM, ...args], { cwd: oomtune.home, env: oomtune.env, stdio: 'ignore' })
        : oomtune.start(args).child;
    const end = once(ended, 'close');
    await expect.poll(() => existsSync(begun), { timeout: 60_000 }).toBe(true);
    const pid = output === 'a file' ? Number(readFileSync(join(oomtune.home, 'pid'), 'utf8')) : (ended.pid as number);
    process.kill(pid, 'SIGHUP');
    expect((await end)[0]).toBe(code);
    expect(report(file).outcome).toBe(outcome);
  });

  it('lets a job that Ctrl-C reaches save what it has, as at a terminal', async () => {
    const saves = 'trap "sleep 2; echo saved; exit 0" INT; echo begun; while :; do sleep 0.1; done';
    const { child, ended, printed, said } = oomtune.start([...PLAIN, '--', 'bash', '-c', saves]);
    await expect.poll(printed, { timeout: 60_000 }).toContain('begun');
    child.kill('SIGINT');
    const { code, stdout } = await ended;
    expect({ code, stdout }).toEqual({ code: 130, stdout: 'begun\nsaved\n' });
    expect(said()).toContain('may save what it has. Ctrl-C ends it.');
  });

  it.each(['SIGUSR1', 'SIGUSR2'] as const)('hands %s on to the job, as clusters warn with it', async (name) => {
    const warned = `trap "echo saved; exit 3" ${name.slice(3)}; echo begun; while :; do sleep 0.1; done`;
    const { child, ended, printed } = oomtune.start([...PLAIN, '--', 'bash', '-c', warned]);
    await expect.poll(printed, { timeout: 60_000 }).toContain('begun');
    child.kill(name);
    expect(await ended).toMatchObject({ code: 3, stdout: 'begun\nsaved\n' });
  });

  it('ends one that goes on all the same when Ctrl-C is pressed again', async () => {
    const { child, ended, printed, said } = oomtune.start([
      ...PLAIN,
      '--',
      'bash',
      '-c',
      'trap "" INT; echo begun; sleep 600 & wait; wait',
    ]);
    await expect.poll(printed, { timeout: 60_000 }).toContain('begun');
    child.kill('SIGINT');
    await expect.poll(said, { timeout: 60_000 }).toContain('Ctrl-C ends it');
    child.kill('SIGINT');
    expect((await ended).code).toBe(130);
  });

  it('ends with 128 + n for a job that signal n ended', async () => {
    expect((await oomtune.call([...PLAIN, '--', 'sh', '-c', 'kill -9 $$'])).code).toBe(137);
    expect((await oomtune.call([...PLAIN, '--', 'sh', '-c', 'kill -TERM $$'])).code).toBe(143);
  });

  it('ends with 4 for a job that ran past its time', async () => {
    const { code, stderr } = await oomtune.call([
      ...PLAIN,
      '--timeout',
      '0.5',
      '--report',
      'late.json',
      '--',
      'sleep',
      '60',
    ]);
    expect(code).toBe(4);
    expect(stderr).toContain('out of time');
    expect(report('late.json').outcome).toBe('timeout');
    expect(oomtune.leftovers()).toEqual([]);
  });

  it('never gives the command to a shell', async () => {
    const { stdout } = await oomtune.call([...PLAIN, '--', 'printf', '%s|', '$HOME', '*', 'a b', ';', '--json']);
    expect(stdout).toBe('$HOME|*|a b|;|--json|');
  });

  it('writes its report to a file, and leaves stdout to the job', async () => {
    const { code, stdout } = await oomtune.call([
      ...PLAIN,
      '--json',
      '--report',
      'r.json',
      '--',
      'sh',
      '-c',
      'echo mine; exit 3',
    ]);
    expect(code).toBe(3);
    expect(stdout).toBe('mine\n');
    expect(report('r.json')).toMatchObject({ exit_code: 3, signal: null, outcome: 'failed' });
  });

  it('holds a job to its budget, and tells the refused allocation and the peak', async () => {
    const hungry = 'import torch; x = [torch.zeros(2**20) for _ in range(100)]';
    const args = [...PLAIN, '--budget', '100MiB', '--report', 'oom.json', '--', PYTHON, '-c', hungry];
    const { code, stderr } = await oomtune.call(args);
    expect(code).toBe(1);
    expect(stderr).toContain("DefaultCPUAllocator: can't allocate memory");
    const written = report('oom.json');
    expect(written.failure?.class).toBe('device_oom');
    expect(written.refused).toBeGreaterThan(0);
    expect(written.devices[0]?.peak_bytes).toBeGreaterThan(80 * 1024 ** 2);
    expect(written.devices[0]?.peak_bytes).toBeLessThanOrEqual(100 * 1024 ** 2);
  });

  it('runs a job that fits as it stands exactly as it stands', async () => {
    const script = join(ROOT, 'examples', 'mlp.py');
    const { code, stdout, stderr } = await oomtune.call([
      'run',
      '--device',
      'cpu',
      '--budget',
      '1GiB',
      '--report',
      'mlp.json',
      '--',
      PYTHON,
      script,
    ]);
    expect(stderr).toContain('running');
    expect(code).toBe(0);
    expect(stdout).toContain('epoch');
    expect(report('mlp.json').outcome).toBe('succeeded');
  });

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('ends the whole tree of the job on %s and exits with %i', async (signal, expected) => {
    const tree = 'setsid sleep 300 & sleep 300 & wait';
    const { child, ended } = oomtune.start([...PLAIN, '--', 'bash', '-c', tree]);
    const sleepers = () => oomtune.leftovers().filter((one) => one.endsWith(' sleep 300'));
    await vi.waitFor(() => expect(sleepers()).toHaveLength(2), { timeout: 30_000 });
    child.kill(signal);
    expect((await ended).code).toBe(expected);
    expect(oomtune.leftovers()).toEqual([]);
  });

  it('hands on its whole environment, as nice and time do', async () => {
    const env = { MY_TOKEN: 'secret', WANTED: 'yes', OMPI_MCA_plm: 'isolated', OOMTUNE_RESUME: '1' };
    const { stdout } = await oomtune.call([...PLAIN, '--env', 'WANTED', '--env', 'SET=here', '--', 'env'], { env });
    expect(stdout).toContain('WANTED=yes\n');
    expect(stdout).toContain('SET=here\n');
    expect(stdout).toContain('MY_TOKEN=secret\n');
    expect(stdout).toContain('OMPI_MCA_plm=isolated\n');
    expect(stdout).toContain(`OOMTUNE_HOME=${oomtune.home}\n`);
    expect(stdout).toMatch(/^OOMTUNE_JOB_ID=j-/m);
    expect(stdout).not.toContain('OOMTUNE_RESUME');
  });
});
