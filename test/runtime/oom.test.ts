import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
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
});
