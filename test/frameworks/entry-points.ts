import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, expect } from 'vitest';
import { QUICK_END } from '../common/quick-end.js';

/** What is started by a program of its own, a folder each: what is pinned of it, and what it reads. */
export const FOLDERS = join(import.meta.dirname, 'entry-points');

/** The folders that set-up found or made programs in: `NAME=FOLDER`, with commas. */
const programs = new Map(
  (process.env.OOMTUNE_TEST_ENTRY_POINTS ?? '')
    .split(',')
    .filter(Boolean)
    .map((one) => one.split('=') as [string, string]),
);

const made: string[] = [];
afterAll(() => {
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
});

/** Whether that entry point could be had; where not, this says so. */
export function there(name: string): boolean {
  if (!programs.has(name))
    process.stderr.write(`SKIPPED: ${name}, as OOMTUNE_TEST_ENTRY_POINTS names no folder with its program\n`);
  return programs.has(name);
}

export interface Place {
  cwd: string;
  env: NodeJS.ProcessEnv;
  bin: string;
}

/** A folder with the files of an entry point. */
export function placeOf(name: string): Place {
  const cwd = mkdtempSync(join(tmpdir(), 'oomtune-entry-'));
  made.push(cwd);
  cpSync(join(FOLDERS, name), cwd, { recursive: true });
  const bin = programs.get(name) as string;
  const env = {
    PATH: `${bin}:${process.env.PATH}`,
    HOME: process.env.HOME,
    PYTHONPATH: [cwd, QUICK_END].join(delimiter),
    HF_HUB_OFFLINE: '1',
    CUDA_VISIBLE_DEVICES: '',
    OMP_NUM_THREADS: '1',
  };
  return { cwd, env, bin };
}

/** The same, with what it reads as its `make.py` makes it. */
export function readyPlaceOf(name: string): Place {
  const at = placeOf(name);
  if (existsSync(join(at.cwd, 'make.py'))) done(['python', 'make.py'], at);
  return at;
}

/** What one of its programs wrote to stdout; it has to end well. */
export function done(words: string[], at: Place): string {
  const [program, ...args] = words as [string, ...string[]];
  const run = spawnSync(join(at.bin, program), args, { cwd: at.cwd, env: at.env, encoding: 'utf8', timeout: 240_000 });
  expect(run.status, run.stderr.slice(-2000)).toBe(0);
  return run.stdout;
}

/** What a program under its interpreter answers with its last line. */
export function asked(at: Place, program: string, args: string[] = []) {
  const lines = done(['python', '-c', program, ...args], at)
    .trim()
    .split('\n');
  return JSON.parse(lines.at(-1) as string);
}
