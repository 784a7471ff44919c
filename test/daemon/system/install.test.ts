import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROGRAM } from '../../cli/oomtune.js';
import { Machine, noUsers, type User } from './machine.js';

const oomtune = (...args: string[]) => spawnSync(PROGRAM, args, { encoding: 'utf8' });

describe('daemon install --system', () => {
  it('prints a unit for this installation that systemd finds nothing wrong with', () => {
    const { status, stdout } = oomtune('daemon', 'install', '--system', '--print', '--admin-group', 'gpu-admins');
    expect(status).toBe(0);
    expect(stdout).toContain(`${PROGRAM} daemon run --system --admin-group gpu-admins`);
    expect(stdout).not.toMatch(/@[A-Z]+@/);
    if (spawnSync('systemd-analyze', ['--version']).status !== 0) {
      process.stderr.write('SKIPPED: the unit is not checked by systemd-analyze, which is not installed here\n');
      return;
    }
    const folder = mkdtempSync(join(tmpdir(), 'oomtune-unit-'));
    writeFileSync(join(folder, 'oomtune.service'), stdout);
    const said = spawnSync('systemd-analyze', ['verify', join(folder, 'oomtune.service')], { encoding: 'utf8' });
    rmSync(folder, { recursive: true });
    expect(`${said.stdout}${said.stderr}`.split('\n').filter((line) => line.includes('oomtune.service'))).toEqual([]);
  });

  it('is asked for by name, with a group that can be one', () => {
    expect(oomtune('daemon', 'install').stderr).toContain('oomtune daemon install --system');
    expect(oomtune('daemon', 'install', '--system', '--print', '--admin-group', 'a b').status).toBe(2);
  });

  it.skipIf(existsSync('/run/systemd/system'))('says the way by hand where systemd does not run', () => {
    const { status, stderr } = oomtune('daemon', 'install', '--system');
    expect([status, stderr]).toEqual([2, expect.stringContaining('a-server-for-a-lab.md')]);
    expect(existsSync('/etc/systemd/system/oomtune.service')).toBe(false);
  });

  it('leads to a guide that names what it names', () => {
    const guide = readFileSync(join(import.meta.dirname, '../../../docs/guides/a-server-for-a-lab.md'), 'utf8');
    for (const word of [
      'oomtune daemon run --system',
      '--print',
      '/run/oomtune/oomtune.sock',
      '/var/lib/oomtune',
      'oomtune-admin',
    ])
      expect(guide).toContain(word);
  });
});

describe.skipIf(noUsers !== null)('a user who is not root', () => {
  let machine: Machine;
  let user: User;
  beforeAll(() => {
    machine = new Machine();
    user = machine.user();
  });
  afterAll(() => machine.close());

  it('can neither install nor run the daemon for all users, and is told the way', async () => {
    for (const verb of ['install', 'run']) {
      const { code, stderr } = await user.call(['daemon', verb, '--system']);
      expect([verb, code, stderr]).toEqual([verb, 2, expect.stringMatching(/root/)]);
    }
  });
});
