import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { clearGroup } from '../../src/runtime/ending.js';
import { freshDir } from './helpers.js';

/** A stand-in for a cgroup of a kernel that has no cgroup.kill (before Linux 5.14), which cannot be here: plain files, real processes. */
test('what is left in groups below the launch’s own is ended where there is no cgroup.kill', async () => {
  const group = join(freshDir(), 'oomtune-j-old-1-7');
  const inner = join(group, 'of the job', 'deeper');
  mkdirSync(inner, { recursive: true });
  writeFileSync(join(group, 'cgroup.events'), 'populated 1\nfrozen 0\n');
  const processes = [group, join(group, 'of the job'), inner].map((folder) => {
    const child = spawn('sleep', ['600']);
    writeFileSync(join(folder, 'cgroup.procs'), `${child.pid}\n`);
    return child;
  });
  const cleared = clearGroup(group);
  for (const child of processes) {
    if (child.signalCode === null) await once(child, 'exit');
    expect(child.signalCode).toBe('SIGKILL');
  }
  // What the kernel does when the last of them is gone
  for (const file of ['cgroup.procs', 'of the job/cgroup.procs', 'of the job/deeper/cgroup.procs'])
    rmSync(join(group, file));
  for (const file of ['cgroup.events', 'cgroup.kill']) rmSync(join(group, file), { force: true });
  await cleared;
  expect(existsSync(group)).toBe(false);
});
