import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import type { LaunchSpec } from '../../src/runtime/types.js';

/** Debian's interpreter: the one that has torch. */
export const PYTHON = '/usr/bin/python3';

const root = mkdtempSync(join(tmpdir(), 'oomtune-runtime-'));
let count = 0;

afterAll(() => rmSync(root, { recursive: true, force: true }));

/** A launch folder that is not there yet. */
export function freshDir(): string {
  count += 1;
  return join(root, `launch-${process.pid}-${count}`);
}

export function launchSpec(argv: string[], more: Partial<LaunchSpec> = {}): LaunchSpec {
  return {
    jobId: 'j-test',
    launch: 1,
    argv,
    cwd: root,
    env: { PATH: process.env.PATH ?? '/usr/bin:/bin', OMP_NUM_THREADS: '1' },
    dir: freshDir(),
    devices: ['cpu'],
    budgetBytes: null,
    timeoutSeconds: null,
    graceSeconds: 5,
    output: 'log',
    ...more,
  };
}
