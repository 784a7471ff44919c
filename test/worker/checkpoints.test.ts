import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { resumes, wroteCheckpoint } from '../../src/worker/run/resumption.js';
import type { Target } from '../../src/worker/target.js';
import type { WorkRequest } from '../../src/worker/types.js';

let cwd: string;
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), 'oomtune-checkpoints-'));
});
afterEach(() => rmSync(cwd, { recursive: true, force: true }));

const START = Date.parse('2026-01-01T00:00:00Z');
const BEFORE = new Date(START - 60_000);
const AFTER = new Date(START + 60_000);

function write(path: string, at = AFTER): void {
  const file = join(cwd, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, 'x');
  utimesSync(file, at, at);
}
const found = (...command: string[]) => wroteCheckpoint(['python', ...command], join(cwd, 'work'), START);

test.each(['work/weights', 'work/model.json', 'work/out/run3/model.safetensors', 'work/out/ckpt-17'])(
  '%s is a checkpoint when it is newer than the start, and none when it is older',
  async (path) => {
    write(path, BEFORE);
    expect(await found('train.py')).toBe(false);
    write(path);
    expect(await found('train.py')).toBe(true);
  },
);

test('a folder that is called after checkpoints is one', async () => {
  mkdirSync(join(cwd, 'work/out/checkpoint-500'), { recursive: true });
  utimesSync(join(cwd, 'work/out/checkpoint-500'), AFTER, AFTER);
  expect(await found('train.py')).toBe(true);
});

test.each([
  'work/train.log',
  'work/.cache',
  'work/run.lock',
  'work/__pycache__/model.bin',
  'work/data/part-0001',
  'work/.git/x.pack.bin',
])('%s is none', async (path) => {
  write(path);
  expect(await found('train.py')).toBe(false);
});

test.each([['--output', 'DIR'], ['--output=DIR'], ['DIR']])(
  'it is found where the command writes it: %s %s',
  async (...words) => {
    mkdirSync(join(cwd, 'work'));
    write('elsewhere/last.pt');
    write('elsewhere/notes');
    expect(await found('train.py')).toBe(false);
    expect(await found('train.py', ...words.map((word) => word.replace('DIR', join(cwd, 'elsewhere'))))).toBe(true);
    expect(await found('train.py', ...words.map((word) => word.replace('DIR', '../elsewhere')))).toBe(true);
  },
);

test('a folder that is gone holds none', async () => {
  expect(await found('train.py')).toBe(false);
});

test.each([
  ['a script that loads one', 'state = torch.load(path)', [], true],
  ['a script that knows none', 'torch.save(state, path)', [], false],
  [
    'a script that takes a flag for it, without that',
    'parser.add_argument("--resume")\ntorch.load(args.resume)',
    [],
    false,
  ],
  ['a script that takes a flag for it, with that', 'parser.add_argument("--resume")', ['--resume', 'last.pt'], true],
])('a checkpoint is gone on from by %s: %s', async (_, code, words, expected) => {
  write('work/last.pt');
  const request = { command: ['python', ...words], options: { resumeArg: null, cwd: join(cwd, 'work') } };
  const target = { plan: { resumes: null, program: { script: null, code } } };
  expect(await resumes(request as unknown as WorkRequest, target as Target, START)).toBe(expected);
});
