import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { readStat } from '../../src/common/process.js';
import { isLocked } from '../../src/runtime/folder-lock.js';
import { createRuntime } from '../../src/runtime/index.js';
import { processesOf } from '../../src/runtime/marks.js';
import type { Run } from '../../src/runtime/types.js';
import { launchSpec, PYTHON } from './helpers.js';

const runtime = createRuntime();

/** Resolves when the job has printed `text`. */
async function printed(run: Run, text: string): Promise<string> {
  for (;;) {
    const log = existsSync(run.logFile) ? readFileSync(run.logFile, 'utf8') : '';
    if (log.includes(text)) return log;
    await sleep(20);
  }
}

const left = (dir: string) => processesOf(dir);

/** Leaves a grandchild behind that has a session of its own and, if told so, shrugs at TERM. */
const escaping = (deaf: boolean) => `
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if ${deaf ? 'True' : 'False'}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("escaped", flush=True)
        time.sleep(600)
    os._exit(0)
time.sleep(float(sys.argv[1]))
`;

describe('the process tree', () => {
  test.each([
    ['that hears TERM', false],
    ['that is deaf to TERM', true],
  ])('loses a grandchild with a session of its own %s, when the job is cancelled', async (_, deaf) => {
    const run = await runtime.launch(launchSpec([PYTHON, '-c', escaping(deaf), '600'], { graceSeconds: 0.5 }));
    await printed(run, 'escaped');
    expect(left(run.dir).length).toBe(2);
    run.end('cancel');
    run.end('cancel');
    const exit = await run.wait();
    expect(exit).toMatchObject({ code: null, signal: 'SIGTERM', ended_by: 'cancel', host_oom: false });
    expect(left(run.dir)).toEqual([]);
  });

  test('loses what outlives the job, which is counted', async () => {
    const run = await runtime.launch(launchSpec([PYTHON, '-c', escaping(true), '0.5'], { graceSeconds: 0.2 }));
    const exit = await run.wait();
    expect(exit).toMatchObject({ code: 0, signal: null, ended_by: 'job', stragglers: 1 });
    expect(left(run.dir)).toEqual([]);
  });

  test('waits for a helper that ends by itself soon after the job', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', '(sleep 0.7; echo late) & exit 3']));
    expect(await run.wait()).toMatchObject({ code: 3, ended_by: 'job' });
    expect(readFileSync(run.logFile, 'utf8')).toBe('late\n');
  });

  /** Leaves a process of that name, and another, and ends with `code`. */
  const leaving = (code: number, seconds: number) =>
    `
import ctypes, os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"oomtune-spare")
        print("ready", flush=True)
        while os.path.exists("/proc/%d" % job): time.sleep(0.02)
        time.sleep(${seconds})
        print("of the search", flush=True)
    os._exit(0)
os.wait()
if os.fork() == 0:
    time.sleep(600)
time.sleep(0.3)
os._exit(${code})
`.replace('import ctypes, os, sys, time', 'import ctypes, os, sys, time\njob = os.getpid()');

  test('keeps the spare of a job that failed until that ends, and nothing else that the job has left', async () => {
    const run = await runtime.launch(launchSpec([PYTHON, '-c', leaving(3, 5)], { graceSeconds: 0.2 }));
    await expect.poll(() => run.mainExit(), { timeout: 10_000 }).toMatchObject({ code: 3, ended_by: 'job' });
    expect(left(run.dir).length).toBe(2);
    await expect.poll(() => left(run.dir).length, { timeout: 10_000 }).toBe(1);
    expect(await run.wait()).toMatchObject({ code: 3, signal: null, ended_by: 'job', host_oom: false });
    expect(readFileSync(run.logFile, 'utf8')).toBe('ready\n');
    expect(readFileSync(join(run.dir, 'search.log'), 'utf8')).toBe('of the search\n');
    expect(left(run.dir)).toEqual([]);
  });

  test('ends the spare of a job that ended well at once', async () => {
    const run = await runtime.launch(launchSpec([PYTHON, '-c', leaving(0, 600)], { graceSeconds: 0.2 }));
    expect(await run.wait()).toMatchObject({ code: 0, ended_by: 'job', host_oom: false });
    expect(existsSync(join(run.dir, 'search.log'))).toBe(false);
  });

  test('ends a spare that waits when the run is cancelled', async () => {
    const run = await runtime.launch(launchSpec([PYTHON, '-c', leaving(3, 600)], { graceSeconds: 0.2 }));
    await expect.poll(() => run.mainExit(), { timeout: 10_000 }).toMatchObject({ code: 3 });
    run.end('cancel');
    expect(await run.wait()).toMatchObject({ code: 3, ended_by: 'job' });
    expect(left(run.dir)).toEqual([]);
  });

  test('is ended, stopped processes too, when the time is up', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', 'kill -STOP $$; sleep 600'], { timeoutSeconds: 0.5 }));
    expect(await run.wait()).toMatchObject({ code: null, signal: 'SIGTERM', ended_by: 'timeout' });
  });

  test('is killed when it does not end in its grace, though it forks on and on', async () => {
    const script = `
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("on", flush=True)
for n in range(10000):
    if os.fork(): os._exit(0) if n else time.sleep(600)
    time.sleep(0.005)
`;
    const run = await runtime.launch(launchSpec([PYTHON, '-c', script], { graceSeconds: 0.3 }));
    await printed(run, 'on');
    run.end('timeout');
    expect(await run.wait()).toMatchObject({ signal: 'SIGKILL', ended_by: 'timeout' });
    expect(left(run.dir)).toEqual([]);
  });

  test('keeps the exit status of a job that ends well on TERM', async () => {
    const script = 'trap "echo saved; exit 0" TERM; echo on; while :; do sleep 0.05; done';
    const run = await runtime.launch(launchSpec(['sh', '-c', script]));
    await printed(run, 'on');
    run.end('cancel');
    expect(await run.wait()).toMatchObject({ code: 0, signal: null, ended_by: 'cancel' });
    expect(readFileSync(run.logFile, 'utf8')).toContain('saved');
  });

  test('tells a job that was killed from outside from one that oomtune ended', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', 'echo on; kill -9 $$']));
    expect(await run.wait()).toMatchObject({ code: null, signal: 'SIGKILL', ended_by: 'job', host_oom: false });
  });
});

describe('a supervisor', () => {
  test('begins its job in a control group of its own, where there can be one, and removes that', async () => {
    const run = await runtime.launch(launchSpec(['cat', '/proc/self/cgroup']));
    const { cgroup, job_pid } = JSON.parse(readFileSync(join(run.dir, 'supervisor.json'), 'utf8'));
    expect(job_pid).toBeGreaterThan(run.supervisorPid);
    await run.wait();
    const unified = /^0::(.*)$/m.exec(readFileSync(run.logFile, 'utf8'))?.[1] ?? '';
    expect(cgroup === null || cgroup.endsWith(unified)).toBe(true);
    expect(basename(unified).startsWith('oomtune-')).toBe(cgroup !== null);
    expect(cgroup !== null && existsSync(cgroup)).toBe(false);
  });

  test('that is on its way is waited for, however long it takes: it holds the lock on its folder', async () => {
    const done = await runtime.launch(launchSpec(['true']));
    await done.wait();
    const { dir } = launchSpec(['true']);
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, 'spec'), '');
    const longAgo = new Date(Date.now() - 60_000);
    utimesSync(join(dir, 'spec'), longAgo, longAgo);
    expect(await runtime.adopt(dir)).toBeNull();
    const slow = 'sleep 1; cp "$0"/supervisor.json "$1"';
    const holder = spawn('flock', [dir, 'sh', '-c', slow, done.dir, dir]);
    await expect.poll(() => isLocked(dir)).toBe(true);
    expect((await runtime.adopt(dir))?.supervisorPid).toBe(done.supervisorPid);
    holder.kill();
  });

  test('outlives who started it, and is found by another process', async () => {
    const spec = launchSpec(['sh', '-c', 'echo on; sleep 600']);
    const run = await runtime.launch(spec);
    await printed(run, 'on');
    const stat = readStat(run.supervisorPid);
    expect(stat?.parent).not.toBe(process.pid);
    const found = await runtime.adopt(spec.dir);
    expect(found?.supervisorPid).toBe(run.supervisorPid);
    found?.end('cancel');
    expect(await found?.wait()).toMatchObject({ ended_by: 'cancel' });
    expect(await run.wait()).toMatchObject({ ended_by: 'cancel' });
    expect((await runtime.adopt(spec.dir)) && (await (await runtime.adopt(spec.dir))?.wait())).toMatchObject({
      ended_by: 'cancel',
    });
  });

  test('that is killed takes its job along, and says so', async () => {
    const run = await runtime.launch(launchSpec([PYTHON, '-c', escaping(true), '600']));
    await printed(run, 'escaped');
    process.kill(run.supervisorPid, 'SIGKILL');
    const exit = await run.wait();
    expect(exit).toMatchObject({ code: null, signal: null, ended_by: 'supervisor-lost' });
    expect(left(run.dir)).toEqual([]);
    expect(await (await runtime.adopt(run.dir))?.wait()).toMatchObject({ ended_by: 'supervisor-lost' });
  });

  test('was never there: nothing to adopt', async () => {
    expect(await runtime.adopt('/tmp/oomtune-no-such-launch')).toBeNull();
  });

  test('keeps the log within its limit and its own memory flat, whatever the job prints', async () => {
    const script = 'import sys\nfor _ in range(200): sys.stdout.write("x" * (1 << 20))\nsys.stdout.flush()';
    const run = await runtime.launch(launchSpec([PYTHON, '-c', script]));
    let resident = 0;
    const watch = setInterval(() => {
      try {
        const status = readFileSync(`/proc/${run.supervisorPid}/status`, 'utf8');
        resident = Math.max(resident, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0));
      } catch {
        // it has ended
      }
    }, 5);
    const exit = await run.wait();
    clearInterval(watch);
    expect(exit.code).toBe(0);
    const sizes = ['log', 'log.1'].map((name) => statSync(join(run.dir, name)).size);
    expect(sizes[1]).toBe(64 * 1024 ** 2);
    expect((sizes[0] ?? 0) + 2 * (sizes[1] ?? 0)).toBeLessThanOrEqual(200 * 1024 ** 2);
    expect(resident).toBeGreaterThan(0);
    expect(resident).toBeLessThan(8 * 1024);
  });
});
