import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { OomtuneError } from '../../src/common/errors.js';
import { findCommand } from '../../src/common/executable.js';

const folder = mkdtempSync(join(tmpdir(), 'oomtune-executable-'));
const env = { PATH: '/usr/bin:/bin' };
writeFileSync(join(folder, 'train.py'), 'print()');
writeFileSync(join(folder, 'go'), '#!/bin/sh');
chmodSync(join(folder, 'go'), 0o755);
writeFileSync(join(folder, 'stop'), '#!/bin/sh');
afterAll(() => rmSync(folder, { recursive: true }));

function refusal(name: string): OomtuneError {
  try {
    findCommand(name, env, folder);
  } catch (error) {
    if (error instanceof OomtuneError) return error;
    throw error;
  }
  throw new Error(`${name} is there`);
}

it('finds a command by PATH, and by its path in the folder of the job', () => {
  expect(findCommand('sh', env, folder)).toMatch(/\/sh$/);
  expect(findCommand('./go', env, folder)).toBe(join(folder, 'go'));
});

it.each([
  ['a whole line in quotes', 'python train.py --lr 1', '-- python train.py --lr 1'],
  ['a variable before the program', 'CUDA_VISIBLE_DEVICES=0', '-- env CUDA_VISIBLE_DEVICES=0 COMMAND'],
  ['what only a shell knows', 'cd', "bash -c 'cd"],
  ['a script without its interpreter', 'train.py', 'python train.py'],
  ['one that may not be executed', './train.py', 'python ./train.py'],
  ['one that would be able to', './stop', 'chmod +x'],
  ['a folder', '/etc', 'Name the program'],
  ['anything else', 'trian', 'Check the spelling'],
  ['an alias', 'll', 'For an alias of your shell write out what it stands for.'],
])('says what to write in the place of %s', (_, name, remedy) => {
  expect(refusal(name)).toMatchObject({ code: 'OOMTUNE_COMMAND_MISSING' });
  expect(refusal(name).remedy).toContain(remedy);
});

it('advises no chmod alone for a script that names no interpreter', () => {
  expect(refusal('./train.py').remedy).toMatch(/^Name its interpreter first: python .*chmod \+x` alone would not do/);
});

it('a folder that is gone is told as that, whatever the command', () => {
  const gone = join(folder, 'gone');
  for (const name of ['sh', './go', '/bin/sh'])
    expect(() => findCommand(name, env, gone)).toThrow(`The folder ${gone}, in which the command is to run, does not`);
});
