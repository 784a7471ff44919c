import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { Oomtune } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

it.each([
  [
    'that answers too late',
    'sleep 30',
    'OOMTUNE_COMMAND_SILENT',
    /did not say which torch it has within 1 s.*OOMTUNE_START_SECONDS/s,
  ],
  ['that cannot be run', 'exit 3', 'OOMTUNE_COMMAND_MISSING', /cannot be run/],
])('an interpreter %s is told as that', async (_, does, code, says) => {
  const cwd = join(oomtune.home, code);
  mkdirSync(cwd, { recursive: true });
  writeFileSync(join(cwd, 'python3'), `#!/bin/sh\n${does}\n`, { mode: 0o755 });
  writeFileSync(join(cwd, 'train.py'), 'import torch\n');
  const args = ['find-batch', '--device', 'cpu', '--json', '--', join(cwd, 'python3'), 'train.py'];
  const { code: exit, stdout } = await oomtune.call(args, { cwd, env: { OOMTUNE_START_SECONDS: '1' } });
  expect(exit).toBe(5);
  const { error } = JSON.parse(stdout);
  expect(error.code).toBe(code);
  expect(`${error.message} ${error.remedy}`).toMatch(says);
});
