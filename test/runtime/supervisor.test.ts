import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { loadNative } from '../../src/runtime/native.js';
import { encodeSpec } from '../../src/runtime/spec.js';
import { freshDir, launchSpec } from './helpers.js';

const { supervisor } = loadNative();
const run = promisify(execFile);

/** Runs the executable itself; resolves with its exit code and what it said. */
async function supervise(...args: string[]): Promise<{ code: number; said: string }> {
  try {
    await run(supervisor, args);
    return { code: 0, said: '' };
  } catch (error) {
    const { code, stderr } = error as { code: number; stderr: string };
    return { code, said: stderr };
  }
}

function folderWith(spec: string | null): string {
  const dir = freshDir();
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  if (spec !== null) writeFileSync(join(dir, 'spec'), spec);
  return dir;
}

const sound = encodeSpec(launchSpec(['sh', '-c', 'exit 3']), { PATH: '/usr/bin:/bin' }, [], null);
const exitOf = (dir: string) => JSON.parse(readFileSync(join(dir, 'exit.json'), 'utf8'));

describe('the supervisor executable', () => {
  test('does what the spec says, in the foreground too', async () => {
    const dir = folderWith(sound);
    expect(await supervise(dir)).toEqual({ code: 0, said: '' });
    expect(exitOf(dir)).toMatchObject({ schema: 1, code: 3, ended_by: 'job' });
    expect(readdirSync(dir).sort()).toEqual(['exit.json', 'log', 'supervisor.json']);
  });

  test('takes a folder once', async () => {
    const dir = folderWith(sound);
    await supervise(dir);
    const before = readFileSync(join(dir, 'exit.json'), 'utf8');
    expect(await supervise(dir)).toMatchObject({ code: 2, said: expect.stringContaining('already used') });
    expect(readFileSync(join(dir, 'exit.json'), 'utf8')).toBe(before);
  });

  test.each([
    ['none', null],
    ['an empty one', ''],
    ['one that is cut off', sound.slice(0, -1)],
    ['an unknown record', `${sound}colour=blue\0`],
    ['a secret in a broken record', `${sound}env=hunter2\0`],
    ['nothing but noise', '\u0000\u0001=\u0000='.repeat(500)],
  ])('with a spec that is not one (%s) starts nothing, and says so', async (_, spec) => {
    const dir = folderWith(spec);
    await supervise(dir);
    const exit = exitOf(dir);
    expect(exit).toMatchObject({ code: null, signal: null, ended_by: 'start-failed', host_oom: false });
    expect(exit.error).toMatch(/^spec: /);
    expect(exit.error).not.toContain('hunter2');
  });

  test.each([
    ['a command that is not there', { argv: ['/no/such/command'] }, 'No such file or directory'],
    ['a command that is no program', { argv: ['/etc/passwd'] }, 'Permission denied'],
    ['a folder that is not there', { cwd: '/no/such/folder' }, 'cwd /no/such/folder: No such file or directory'],
  ])('tells why it could not start: %s', async (_, more, reason) => {
    const dir = folderWith(encodeSpec(launchSpec(['true'], more), {}, [], null));
    await supervise(dir);
    expect(exitOf(dir)).toMatchObject({ ended_by: 'start-failed', error: expect.stringContaining(reason) });
  });

  test('never runs a text without an interpreter as a shell would', async () => {
    const dir = folderWith(null);
    const script = join(dir, 'script');
    writeFileSync(script, 'echo shell\n', { mode: 0o700 });
    writeFileSync(join(dir, 'spec'), encodeSpec(launchSpec([script]), {}, [], null));
    await supervise(dir);
    expect(exitOf(dir)).toMatchObject({
      ended_by: 'start-failed',
      error: expect.stringContaining('Exec format error'),
    });
  });

  test('has a strict command line', async () => {
    const dir = folderWith(sound);
    for (const args of [
      [],
      ['relative'],
      ['--what', dir],
      ['--report', '1', dir],
      ['--report', '9', dir],
      [dir, dir],
    ]) {
      expect(await supervise(...args), args.join(' ')).toMatchObject({
        code: 2,
        said: expect.stringContaining('usage'),
      });
    }
    expect(await supervise('/no/such/folder')).toMatchObject({ code: 2 });
    expect(readdirSync(dir)).toEqual(['spec']);
  });
});
