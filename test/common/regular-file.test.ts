import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LogFile } from '../../src/cli/log-file.js';
import { openRegular, openRegularHandle, readRegular } from '../../src/common/regular-file.js';
import { readExit, readSupervisor } from '../../src/runtime/records.js';
import { lastLines } from '../../src/worker/last-lines.js';

let dir: string;
let path: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'oomtune-regular-'));
  path = join(dir, 'log');
});
afterEach(() => rmSync(dir, { recursive: true }));

const PUT: Record<string, () => void> = {
  'a pipe': () => execFileSync('mkfifo', [path]),
  'a link to a device': () => symlinkSync('/dev/zero', path),
  'a link to a file': () => symlinkSync('/etc/passwd', path),
  'a link to itself': () => symlinkSync(path, path),
  'a folder': () => mkdirSync(path),
  'a socket': () =>
    execFileSync('/usr/bin/python3', [
      '-c',
      'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])',
      path,
    ]),
  nothing: () => {},
};

test.each(Object.entries(PUT))('%s in a file’s place is not read, and nobody waits for it', async (_, put) => {
  put();
  expect(openRegular(path)).toBeNull();
  expect(await openRegularHandle(path)).toBeNull();
  expect(() => readRegular(path, 1000)).toThrow();
  expect(lastLines(path)).toEqual([]);
  const log = new LogFile(dir);
  log.seekTail(3);
  expect([...log.read()]).toEqual([]);
  log.close();
});

test.each(Object.entries(PUT))(
  '%s in the place of a supervisor’s record does not keep its job from being ended',
  (what, put) => {
    path = join(dir, 'supervisor.json');
    put();
    expect(readSupervisor(dir)).toBe(what === 'nothing' ? null : 'torn');
  },
);

test('a regular file is read as it is', async () => {
  writeFileSync(path, 'one\ntwo\n');
  const file = openRegular(path);
  expect(file).toMatchObject({ size: 8 });
  closeSync(file?.fd as number);
  await (await openRegularHandle(path))?.close();
  expect(readRegular(path, 8)).toBe('one\ntwo\n');
  expect(lastLines(path)).toEqual(['one', 'two']);
});

test('what is larger than it may be is refused before it is read', () => {
  writeFileSync(path, '');
  truncateSync(path, 2 ** 40);
  expect(() => readRegular(path, 1000)).toThrow(/bytes/);
  truncateSync(path, 0);
  writeFileSync(join(dir, 'exit.json'), '');
  truncateSync(join(dir, 'exit.json'), 2 ** 40);
  expect(readExit(dir)).toBeNull(); // torn: how the run ended is found out otherwise
});

test('the last lines of a log that a job has made endless are found in bounded time', () => {
  writeFileSync(path, '');
  truncateSync(path, 2 ** 42);
  const log = new LogFile(dir);
  log.seekTail(3);
  let read = 0;
  for (const chunk of log.read()) read += chunk.length;
  expect(read).toBe(64 * 1024 ** 2);
  log.close();
});
