import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
import { loadNative } from '../../src/runtime/native.js';
import { encodeSpec } from '../../src/runtime/spec.js';
import { launchSpec, PYTHON } from './helpers.js';

/** A memory cgroup of our own with a limit, or why there can be none. */
function limitedGroup(bytes: number): { folder: string } | { reason: string } {
  if (process.getuid?.() !== 0) return { reason: 'only root may make a memory cgroup' };
  const own = readFileSync('/proc/self/cgroup', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .find(([, controllers]) => controllers?.split(',').includes('memory'));
  const v2 = existsSync('/sys/fs/cgroup/cgroup.controllers');
  const base = v2 ? '/sys/fs/cgroup' : `/sys/fs/cgroup/memory${own?.[2] ?? ''}`;
  const folder = join(base, `oomtune-test-${process.pid}`);
  try {
    mkdirSync(folder);
    writeFileSync(join(folder, v2 ? 'memory.max' : 'memory.limit_in_bytes'), String(bytes));
    if (v2) writeFileSync(join(folder, 'memory.swap.max'), '0');
    return { folder };
  } catch (error) {
    return { reason: `no memory cgroup can be made here: ${(error as Error).message}` };
  }
}

describe('a job that the kernel killed for memory', () => {
  test('is told from one that somebody killed', async (context) => {
    const group = limitedGroup(100 * 1024 ** 2);
    if ('reason' in group) {
      console.warn(`Skipped: ${group.reason}.`);
      context.skip(group.reason);
      return;
    }
    const script = `
import os
open("${group.folder}/cgroup.procs", "w").write(str(os.getpid()))
data = [bytearray(os.urandom(1 << 20)) for _ in range(400)]
`;
    const run = await createRuntime().launch(launchSpec([PYTHON, '-c', script]));
    const exit = await run.wait();
    rmdirSync(group.folder);
    expect(exit).toMatchObject({ code: null, signal: 'SIGKILL', ended_by: 'job', host_oom: true });
  });

  test('is told from one that failed beside another that was', async (context) => {
    const group = limitedGroup(60 * 1024 ** 2);
    if ('reason' in group) {
      console.warn(`Skipped: ${group.reason}.`);
      context.skip(group.reason);
      return;
    }
    const spec = launchSpec(['sh', '-c', 'echo on; read -r go < "$OOMTUNE_RUN_DIR/go"; exit 1']);
    mkdirSync(spec.dir, { recursive: true });
    execFileSync('mkfifo', [join(spec.dir, 'go')]);
    const env = { ...spec.env, OOMTUNE_RUN_DIR: spec.dir };
    writeFileSync(join(spec.dir, 'spec'), encodeSpec(spec, env, [], null));
    // Both supervisor and job are in the group; without cgroup v2 the launch has none of its own for memory
    const inGroup = ['sh', '-c', `echo $$ > ${group.folder}/cgroup.procs; exec "$@"`, 'sh'];
    const supervisor = spawn(inGroup[0] as string, [...inGroup.slice(1), loadNative().supervisor, spec.dir]);
    const ended = once(supervisor, 'exit');
    await expect
      .poll(() => existsSync(join(spec.dir, 'log')) && readFileSync(join(spec.dir, 'log'), 'utf8'))
      .toBe('on\n');
    const hog = [...inGroup, PYTHON, '-c', 'import os; data = [bytearray(os.urandom(1 << 20)) for _ in range(400)]'];
    const [, signal] = await once(spawn(hog[0] as string, hog.slice(1)), 'exit');
    expect(signal).toBe('SIGKILL');
    writeFileSync(join(spec.dir, 'go'), 'go\n');
    await ended;
    rmdirSync(group.folder);
    const exit = JSON.parse(readFileSync(join(spec.dir, 'exit.json'), 'utf8'));
    expect(exit).toMatchObject({ code: 1, signal: null, ended_by: 'job' });
    expect(exit.host_oom).not.toBe(true);
  });
});
