import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { readStat } from '../../src/common/process.js';
import { cannotMount, type SlowMount, slowMount } from '../slow-mount.js';
import { ROOT, until } from '../store/home.js';
import { Host } from './host.js';

const START = { OOMTUNE_START_SECONDS: '3' };
const END = { OOMTUNE_END_SECONDS: '3' };

describe.skipIf(cannotMount())('a file system that does not answer', () => {
  let host: Host;
  let mount: SlowMount;

  beforeAll(() => {
    host = new Host();
  });
  afterAll(async () => {
    await mount.end();
    await host.close();
  });
  beforeEach(async () => {
    await mount?.end();
    const program = join(host.home, 'program');
    writeFileSync(program, '#!/bin/sh\necho it runs\n', { mode: 0o755 });
    mount = await slowMount({ program, log: program });
  });

  function oomtune(...args: string[]) {
    const child = spawn(process.execPath, [join(ROOT, 'bin', 'oomtune.js'), ...args], {
      cwd: host.work,
      env: { PATH: process.env.PATH, HOME: host.home, OOMTUNE_HOME: host.home, ...START, ...END },
    });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (said += text));
    return { child, ended: once(child, 'exit').then(([code]) => ({ code: code as number | null, said })) };
  }

  /** Whether it has come to read the file that does not answer; others of the line are gone again at any time. */
  const reads = (pid: number) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('cat\0');
    } catch {
      return false;
    }
  };

  test('keeps no command waiting', async () => {
    const plain = ['--no-tune', '--device', 'cpu'];
    const program = join(mount.path, 'program');
    expect(await oomtune('run', ...plain, '--cwd', mount.path, '--', './program').ended).toMatchObject({ code: 0 });
    mount.silence();
    mkdirSync(join(host.work, 'bin'), { recursive: true });
    symlinkSync(mount.path, join(host.work, 'link'));
    const verbs = [
      oomtune('run', ...plain, '--cwd', mount.path, '--', './program'),
      oomtune('run', ...plain, '--', program),
      oomtune('submit', '--device', 'cpu', '--cwd', 'link', '--', 'true'),
      oomtune('find-batch', '--device', 'cpu', '--', 'python3', 'link/train.py'),
      oomtune('diagnose', join(mount.path, 'log')),
    ];
    for (const { ended } of verbs) {
      const { code, said } = await ended;
      expect([code, said]).toEqual([5, expect.stringContaining('OOMTUNE_FILES_SILENT')]);
    }
    expect(await oomtune('submit', '--device', 'cpu', '--preset', 'none', '--', 'true').ended).toMatchObject({
      code: 0,
    });
  });

  test('does not keep a command from being interrupted', async () => {
    mount.silence();
    const { child, ended } = oomtune('run', '--no-tune', '--device', 'cpu', '--cwd', mount.path, '--', './program');
    await sleep(1000);
    child.kill('SIGINT');
    expect(await ended).toMatchObject({ code: 130 });
  });

  test('stops neither the daemon nor other jobs, and the jobs that name it are given up', async () => {
    // Asked for while it still answers
    const stuck: string[] = [];
    for (let count = 0; count < 5; count += 1)
      stuck.push(await host.submit(['./program'], { cwd: mount.path, retries: 0 }));
    const cancelled = await host.submit(['./program'], { cwd: mount.path });
    mount.silence();
    await host.start({ cpuLanes: 8 }, START);
    const other = await host.shell('echo done >> mark');
    await host.state(other, 'succeeded');
    expect(await oomtune('cancel', cancelled).ended).toMatchObject({ code: 0 });
    await host.state(cancelled, 'cancelled');
    for (const id of stuck) {
      const { failure } = await host.state(id, 'failed');
      expect(failure?.evidence).toContain('does not answer');
    }
    await host.stop();
  });

  test('leaves a process that nothing can end, and an interrupted run says so', async () => {
    const line = `echo on >> begun; until [ -e come ]; do sleep 0.05; done; cat ${mount.path}/log`;
    const { child, ended } = oomtune(
      'run',
      '--no-tune',
      '--device',
      'cpu',
      '--budget',
      '64MiB',
      '--',
      'sh',
      '-c',
      line,
    );
    await until(() => host.lines('begun').length === 1);
    mount.silence();
    writeFileSync(join(host.work, 'come'), '');
    await until(() => host.processes().some(reads));
    child.kill('SIGINT');
    const { code, said } = await ended;
    expect([code, said]).toEqual([5, expect.stringContaining('OOMTUNE_STILL_RUNNING')]);
    // Its memory is promised to nobody meanwhile
    expect((await oomtune('devices', '--json').ended).said).toContain(`"reserved_bytes":${64 * 1024 ** 2}`);
    await mount.end();
    await until(() => host.processes().length === 0);
    expect((await oomtune('devices', '--json').ended).said).toContain('"reserved_bytes":0');
  });

  /** A line that reads the silent file when it is told to, and tells when it does. */
  const reading = () => `echo on >> begun; until [ -e come ]; do sleep 0.05; done; cat ${mount.path}/log`;
  async function silenced(): Promise<void> {
    await until(() => host.lines('begun').length === 1);
    mount.silence();
    writeFileSync(join(host.work, 'come'), '');
    await until(() => host.processes().some(reads));
  }
  const reserved = async () =>
    (await oomtune('devices', '--json').ended).said.includes(`"reserved_bytes":${64 * 1024 ** 2}`);
  const HELD = /Process \d+ \(cat\) was killed and is still there after 3 s/;

  describe('a process that nothing can end', () => {
    beforeEach(() => {
      for (const file of ['begun', 'come']) rmSync(join(host.work, file), { force: true });
    });
    afterEach(async () => {
      await mount.end();
      await until(() => host.processes().length === 0);
      await expect.poll(reserved, { timeout: 20_000 }).toBe(false);
      await host.stop();
    });

    test.each([
      ['run', ['--no-tune'], 'The job ran out of time'],
      ['find-batch', [], 'OOMTUNE_STILL_RUNNING'],
    ])('does not keep %s from ending at its time limit', async (verb, more, says) => {
      const limits = ['--device', 'cpu', '--budget', '64MiB', '--timeout', '2'];
      const { ended } = oomtune(verb, ...more, ...limits, '--', 'sh', '-c', reading(), '{micro_batch}');
      await silenced();
      const { code, said } = await ended;
      expect([code, said]).toEqual([verb === 'run' ? 4 : 5, expect.stringContaining(says)]);
      expect(said).toMatch(HELD);
      expect(await reserved()).toBe(true);
    });

    test.each([
      ['timeout', 3],
      ['cancelled', null],
    ] as const)('does not keep a job from its end: %s', async (state, timeoutSeconds) => {
      await host.start({ cpuLanes: 1, sweepMs: 500 }, END);
      const id = await host.shell(reading(), { timeoutSeconds, retries: 2 });
      await silenced();
      if (state === 'cancelled') await oomtune('cancel', id).ended;
      expect((await host.state(id, state, 40)).reason).toMatch(HELD);
      // Its memory is promised to nobody meanwhile, its lane is free, and a new daemon does not wait for it either
      expect(await reserved()).toBe(true);
      await host.state(await host.shell('true'), 'succeeded');
      expect(host.said).toContain('cannot be ended: its lease stays until it is gone');
      expect(host.starts(id)).toBe(1);
      expect((await oomtune('retry', id).ended).said).toContain('OOMTUNE_STILL_RUNNING');
      await host.kill();
      await host.start({ cpuLanes: 1, sweepMs: 500 }, END);
      await host.state(await host.shell('true'), 'succeeded');
      expect(await reserved()).toBe(true);
    });
  });

  test('leaves a process that nothing can end, and daemon stop --kill names its job', async () => {
    await host.start({}, START);
    const line = `until [ -e go ]; do sleep 0.05; done; cat ${mount.path}/log`;
    const id = await host.shell(line);
    await host.state(id, 'running');
    mount.silence();
    writeFileSync(join(host.work, 'go'), '');
    const stuck = () => host.processes().filter((pid) => readStat(pid)?.state === 'D');
    await until(() => host.processes().some(reads));
    const { code, said } = await oomtune('daemon', 'stop', '--kill').ended;
    expect([code, said]).toEqual([5, expect.stringContaining('OOMTUNE_STILL_RUNNING')]);
    expect(said).toContain(id);
    expect(stuck()).toHaveLength(1);
    await mount.end();
    expect(await oomtune('daemon', 'stop', '--kill').ended).toMatchObject({ code: 0 });
    await host.state(id, 'cancelled');
    await host.start(); // the one before was killed with the job in its queue
    await expect.poll(() => host.leftOver()).toEqual([]);
  });
});
