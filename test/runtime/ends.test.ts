import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, test } from 'vitest';
import { longestStartMs } from '../../src/common/bounds.js';
import { readStat } from '../../src/common/process.js';
import { createRuntime } from '../../src/runtime/index.js';
import { processesOf } from '../../src/runtime/marks.js';
import { loadNative } from '../../src/runtime/native.js';
import { supervisorsOf } from '../../src/runtime/traces.js';
import type { Run } from '../../src/runtime/types.js';
import { ROOT } from '../store/home.js';
import { freshDir, launchSpec, PYTHON } from './helpers.js';

const runtime = createRuntime();
const scratch = mkdtempSync(join(tmpdir(), 'oomtune-ends-'));
const helpers = new Set<ChildProcess>();
afterAll(() => {
  for (const helper of helpers) helper.kill('SIGKILL');
  rmSync(scratch, { recursive: true, force: true });
});

async function printed(run: Run, text: string): Promise<void> {
  for (;;) {
    if (existsSync(run.logFile) && readFileSync(run.logFile, 'utf8').includes(text)) return;
    await sleep(20);
  }
}

const left = (dir: string) => [...processesOf(dir), ...supervisorsOf(dir)];

test('a supervisor that is killed, and its keeper, before it has recorded anything is lost: the folder is sound', async () => {
  const input = join(scratch, 'never-written');
  execFileSync('mkfifo', [input]); // opening it to read waits for a writer
  const spec = launchSpec(['true'], { input: { path: input, offset: 0 } });
  const launched = runtime.launch(spec);
  while (supervisorsOf(spec.dir).length < 2 || !existsSync(join(spec.dir, 'ledger'))) await sleep(20);
  for (const pid of supervisorsOf(spec.dir)) process.kill(pid, 'SIGKILL');
  expect(await (await launched).wait()).toMatchObject({ code: null, ended_by: 'supervisor-lost' });
  expect(readdirSync(spec.dir)).toContain('exit.json');
  expect(readdirSync(spec.dir)).not.toContain('spec'); // it holds the environment
});

describe('a job that stops its supervisor', () => {
  test('can be ended all the same, and as kindly as any other', async () => {
    const script = 'trap "echo saved; exit 0" TERM; kill -STOP $PPID; echo on > "$0"; while :; do sleep 0.05; done';
    const mark = join(scratch, 'stopped');
    const run = await runtime.launch(launchSpec(['sh', '-c', script, mark]));
    while (!existsSync(mark)) await sleep(20);
    run.end('cancel');
    expect(await run.wait()).toMatchObject({ code: 0, ended_by: 'cancel' });
    expect(readFileSync(run.logFile, 'utf8')).toContain('saved\n');
  });

  test('again and again is ended some seconds after its grace', async () => {
    const script = 'trap "" TERM; while :; do kill -STOP $PPID; done';
    const run = await runtime.launch(launchSpec(['sh', '-c', script], { graceSeconds: 0.5 }));
    run.end('cancel');
    const exit = await run.wait();
    expect(exit.ended_by).toBe('cancel');
    expect(left(run.dir)).toEqual([]);
  });

  test('does not escape its time-out', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', 'kill -STOP $PPID; sleep 600'], { timeoutSeconds: 1 }));
    expect(await run.wait()).toMatchObject({ ended_by: 'timeout' });
  });
});

describe('a job that stops its keeper', () => {
  const script = 'kill -STOP $(cut -d" " -f4 /proc/$PPID/stat); echo on; exec sleep "$0"';

  test('leaves none behind', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', script, '1']));
    expect(await run.wait()).toMatchObject({ code: 0, ended_by: 'job' });
    expect(left(run.dir)).toEqual([]);
  });

  test('leaves none behind where nobody watched its end', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', script, '0']));
    while (!existsSync(join(run.dir, 'exit.json')) || left(run.dir).includes(run.supervisorPid)) await sleep(20);
    const found = await runtime.adopt(run.dir);
    expect(await found?.wait()).toMatchObject({ code: 0, ended_by: 'job' });
    expect(left(run.dir)).toEqual([]);
  });
});

/** As `kill -9` of a supervisor's keeper and then of itself: nothing of oomtune is left above the job. */
function killBoth(dir: string): void {
  for (const pid of supervisorsOf(dir)) process.kill(pid, 'SIGKILL');
}

describe('a record that a power cut left full of zeros', () => {
  test('does not hide the run: it is found, ended, and its end is told', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', 'echo on; sleep 600']));
    await printed(run, 'on');
    writeFileSync(join(run.dir, 'supervisor.json'), Buffer.alloc(412));
    const found = await runtime.adopt(run.dir);
    expect(found?.supervisorPid).toBe(run.supervisorPid);
    found?.end('cancel');
    expect(await found?.wait()).toMatchObject({ signal: 'SIGTERM', ended_by: 'cancel' });
  });

  test('of a run that is gone tells that it is lost', async () => {
    const run = await runtime.launch(launchSpec(['sh', '-c', 'echo on; sleep 600']));
    await printed(run, 'on');
    killBoth(run.dir);
    for (const name of ['supervisor.json', 'exit.json']) writeFileSync(join(run.dir, name), Buffer.alloc(412));
    expect(await (await runtime.adopt(run.dir))?.wait()).toMatchObject({ code: null, ended_by: 'supervisor-lost' });
    expect(left(run.dir)).toEqual([]);
  });
});

test('files that decide are written once each side, synchronised before they are renamed', () => {
  for (const [file, write] of [
    ['native/supervisor/record_file.cpp', /fsync\(file\)[\s\S]*renameat\([\s\S]*fsync\(folder\)/],
    [
      'src/common/durable-file.ts',
      /writeWhole\(path, text, true\);\s+syncFolder\([\s\S]*flush \}\);\s+renameSync\([\s\S]*fsyncSync\(/,
    ],
  ] as const) {
    expect(readFileSync(join(ROOT, file), 'utf8')).toMatch(write);
  }
});

describe('a start that does not come to an end', () => {
  test('keeps nothing else from being read or started', async () => {
    const { addon } = loadNative();
    const stuck = join(scratch, 'oomtune-supervisor');
    writeFileSync(stuck, '#!/bin/sh\necho $$ > "$4/pid"; echo $$ >&3; exec sleep 600\n', { mode: 0o755 });
    const dirs = Array.from({ length: 8 }, () => freshDir());
    const starts = dirs.map((dir) => {
      mkdirSync(dir, { recursive: true });
      return addon.spawnSupervisor(stuck, dir, false);
    });
    expect((await readFile('/proc/self/stat', 'latin1')).length).toBeGreaterThan(0); // takes a thread of libuv's pool
    const run = await runtime.launch(launchSpec(['true']));
    expect(await run.wait()).toMatchObject({ code: 0 });
    await expect.poll(() => dirs.every((dir) => existsSync(join(dir, 'pid')))).toBe(true);
    for (const dir of dirs) process.kill(Number(readFileSync(join(dir, 'pid'), 'utf8')), 'SIGKILL');
    await Promise.all(starts.map((start) => start.catch(() => 0)));
  });

  /** A program whose exec the kernel holds back; null, with the reason printed: it cannot be asked to here. */
  async function held(name: string): Promise<string | null> {
    const program = join(scratch, name);
    copyFileSync('/bin/sleep', program);
    const helper = spawn(PYTHON, [join(ROOT, 'test/fixtures/runtime/stuck-exec.py'), program]);
    helpers.add(helper);
    const [said] = (await once(helper.stdout.setEncoding('utf8'), 'data')) as [string];
    if (said.trim() === 'marked') return program;
    console.warn(`Skipped: the kernel cannot be asked to hold an exec back here: ${said}.`);
    return null;
  }

  test('can be given up', async (context) => {
    const program = await held('never');
    if (program === null) return context.skip();
    const asked = Date.now();
    const spec = launchSpec([program, '600'], { givenUp: () => Date.now() - asked > 1000 });
    await expect(runtime.launch(spec)).rejects.toThrow('told to end before it had started');
    expect(left(spec.dir)).toEqual([]);
  });

  test('is given up after OOMTUNE_START_SECONDS', async (context) => {
    const program = await held('too-late');
    if (program === null) return context.skip();
    expect([longestStartMs({}), longestStartMs({ OOMTUNE_START_SECONDS: 'soon' })]).toEqual([120_000, 120_000]);
    process.env.OOMTUNE_START_SECONDS = '1.5';
    const spec = launchSpec([program, '600']);
    await expect(runtime.launch(spec)).rejects.toThrow('told to end before it had started');
    delete process.env.OOMTUNE_START_SECONDS;
    expect(left(spec.dir)).toEqual([]);
  });
});

test('a supervisor and its keeper are two processes of which only the first has the job for a child', async () => {
  const run = await runtime.launch(launchSpec(['sh', '-c', 'echo on; sleep 600']));
  await printed(run, 'on');
  const both = supervisorsOf(run.dir);
  expect(both).toHaveLength(2);
  const keeper = both.find((pid) => pid !== run.supervisorPid) as number;
  expect(readStat(run.supervisorPid)?.parent).toBe(keeper);
  run.end('cancel');
  await run.wait();
  await expect.poll(() => left(run.dir)).toEqual([]);
});

test('the end of a run whose folder was removed meanwhile is known all the same', async () => {
  const go = join(scratch, 'go');
  const run = await runtime.launch(launchSpec(['sh', '-c', `while [ ! -e ${go} ]; do sleep 0.05; done; exit 9`]));
  rmSync(run.dir, { recursive: true });
  writeFileSync(go, '');
  expect(await run.wait()).toMatchObject({ code: 9, ended_by: 'job' });
});

test('a run that is tied to who launched it ends with that, however it is ended', async () => {
  const { dir } = launchSpec([]);
  const program = join(ROOT, 'test/fixtures/runtime/tied.mjs');
  const owner = spawn(process.execPath, [program, dir], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(owner.stdout.setEncoding('utf8'), 'data');
  expect(left(dir).length).toBeGreaterThan(2);
  owner.kill('SIGKILL');
  await expect.poll(() => left(dir), { timeout: 15_000 }).toEqual([]);
  expect(JSON.parse(readFileSync(join(dir, 'exit.json'), 'utf8'))).toMatchObject({ ended_by: 'cancel' });
});
