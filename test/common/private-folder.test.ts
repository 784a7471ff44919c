import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { privateFolder, temporaryFolder } from '../../src/common/private-folder.js';
import { preloadable } from '../../src/runtime/environment.js';
import { embeddedSocket } from '../../src/store/embedded.js';
import { hookSocketPath } from '../../src/worker/launch/session-request.js';

const NOBODY = 65_534;
const before = { TMPDIR: process.env.TMPDIR, OOMTUNE_HOME: process.env.OOMTUNE_HOME };

/** A temporary folder that everybody may write to, and a folder beside it that is nobody else's business. */
let shared: string;
let victim: string;
beforeEach(() => {
  shared = mkdtempSync(join(tmpdir(), 'shared-'));
  chmodSync(shared, 0o1777);
  victim = mkdtempSync(join(tmpdir(), 'victim-'));
  chmodSync(victim, 0o755);
  process.env.TMPDIR = shared;
});
afterEach(() => {
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  for (const folder of [shared, victim]) rmSync(folder, { recursive: true, force: true });
});

const mode = (path: string): number => statSync(path).mode & 0o777;

describe('a private folder', () => {
  test('is made with its parents, and one that is open to others is closed', () => {
    const path = join(victim, 'a', 'b');
    expect(privateFolder(path)).toBe(path);
    expect([mode(path), mode(join(victim, 'a'))]).toEqual([0o700, 0o700]);
    chmodSync(path, 0o777);
    privateFolder(path);
    expect(mode(path)).toBe(0o700);
  });

  test('may be a link where only its user can have put one', () => {
    mkdirSync(join(victim, 'far'));
    symlinkSync(join(victim, 'far'), join(victim, 'home'));
    privateFolder(join(victim, 'home'));
    expect(mode(join(victim, 'far'))).toBe(0o700);
  });

  test('is no link in a folder that everybody may write to, whoever put it there', () => {
    symlinkSync(victim, join(shared, 'home'));
    expect(() => privateFolder(join(shared, 'home'))).toThrow(/a link stands in its place/);
    expect(mode(victim)).toBe(0o755);
  });
});

const isRoot = process.getuid?.() === 0;
if (!isRoot) console.warn('Skipped: what another user does in the temporary folder, as only root can act as one.');

describe.skipIf(!isRoot)('what another user put into the temporary folder first', () => {
  /** As `nobody`, in the shared folder. */
  const asNobody = (line: string): void =>
    void execFileSync('/bin/sh', ['-c', line], { uid: NOBODY, gid: NOBODY, cwd: shared });
  const long = (): string => join(victim, 'x'.repeat(60), 'y'.repeat(60));
  /** All that oomtune keeps in a temporary folder. */
  const users: [string, () => unknown][] = [
    ['the hook’s socket', () => hookSocketPath(long())],
    ['the embedded Redis’s socket', () => embeddedSocket()],
    ['the link to the native libraries', () => preloadable('/opt/my projects/native')],
    ['a home', () => privateFolder(join(shared, `oomtune-${process.getuid?.()}`))],
  ];

  test.each([
    ['a folder', (name: string) => asNobody(`mkdir -m 777 ${name}`), /belongs to another user \(uid 65534\)/],
    ['a private folder', (name: string) => asNobody(`mkdir -m 700 ${name}`), /belongs to another user/],
    ['a link', (name: string) => asNobody(`ln -s ${victim} ${name}`), /a link stands in its place/],
    ['a link to nothing', (name: string) => asNobody(`ln -s ${victim}/none ${name}`), /a link stands in its place/],
    ['a file', (name: string) => asNobody(`: > ${name}`), /a file stands where a folder should be/],
    ['a pipe', (name: string) => asNobody(`mkfifo ${name}`), /a file stands where a folder should be/],
  ])('(%s) is not used, and nothing of ours changes', (_, put, why) => {
    put(`oomtune-${process.getuid?.()}`);
    process.env.OOMTUNE_HOME = long();
    for (const [what, use] of users) expect(use, what).toThrow(why);
    expect(mode(victim)).toBe(0o755);
  });

  test('while we look is not used either', async () => {
    const name = `oomtune-${process.getuid?.()}`;
    const swap = `while :; do ln -sfn ${victim} ${name}; rm -f ${name}; mkdir ${name}; rmdir ${name}; done 2>/dev/null`;
    const other: ChildProcess = spawn('/bin/sh', ['-c', swap], { uid: NOBODY, gid: NOBODY, cwd: shared });
    let refused = 0;
    for (const end = Date.now() + 1500; Date.now() < end; ) {
      try {
        temporaryFolder('/home');
        rmSync(join(shared, name), { recursive: true }); // ours: away with it, and once more
      } catch (error) {
        expect((error as { code: string }).code).toBe('OOMTUNE_HOME_UNUSABLE');
        refused += 1;
      }
    }
    other.kill('SIGKILL');
    await once(other, 'exit');
    expect(refused).toBeGreaterThan(0);
    expect(mode(victim)).toBe(0o755);
  });
});
