import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../store/home.js';

const path = join(ROOT, 'deploy/systemd/oomtune.service');

test('the unit leaves jobs alone when the daemon ends, and the daemon when a job does', () => {
  const lines = readFileSync(path, 'utf8').split('\n');
  for (const line of ['KillMode=process', 'OOMPolicy=continue', 'Delegate=yes', 'NoNewPrivileges=yes', 'UMask=0077']) {
    expect(lines).toContain(line);
  }
  // Training jobs work in homes and /tmp, and reach their GPUs through /dev
  expect(
    lines.filter((line) => /^(PrivateTmp|PrivateDevices|ProtectHome|MemoryDenyWriteExecute)=yes/.test(line)),
  ).toEqual([]);
});

const forAll = join(ROOT, 'deploy/systemd/oomtune-system.service');

test('the unit for all users leaves jobs alone, too, and takes nothing from them that their users have', () => {
  const lines = readFileSync(forAll, 'utf8').split('\n');
  for (const line of ['KillMode=process', 'OOMPolicy=continue', 'Delegate=yes', 'UMask=0022'])
    expect(lines).toContain(line);
  expect(lines.filter((line) => /^(Private|Protect|Restrict|NoNewPrivileges|Capability)\w*=/.test(line))).toEqual([]);
});

const analyze = spawnSync('systemd-analyze', ['--version']).status === 0;
if (!analyze)
  process.stderr.write('SKIPPED: the unit is not checked by systemd-analyze, which is not installed here\n');

test.skipIf(!analyze)('systemd finds nothing wrong with it', () => {
  const { stdout, stderr } = spawnSync('systemd-analyze', ['verify', path], { encoding: 'utf8' });
  expect(`${stdout}${stderr}`.split('\n').filter((line) => line.includes('oomtune.service'))).toEqual([]);
});
