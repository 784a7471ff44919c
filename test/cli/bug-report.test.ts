import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bugReport } from '../../src/cli/bug-report.js';
import { verbDocuments } from '../../src/contract/verbs.js';
import { PROGRAM, PYTHON } from './oomtune.js';

const run = promisify(execFile);
/** In every planted name, whatever becomes of the letters around it. */
const SECRET = 'sesame';
const folder = mkdtempSync(join(tmpdir(), `oomtune-${SECRET}-`));
const home = join(folder, `${SECRET} home`, 'state');
const bin = join(folder, `${SECRET}-bin`);

/** A machine full of what must not be told: paths, hosts, passwords and tokens, with and without letters around them. */
const env = {
  PATH: `${bin}:${process.env.PATH}`,
  HOME: join(folder, `${SECRET} home`),
  OOMTUNE_HOME: home,
  OOMTUNE_HOST: `${SECRET}-host`,
  OOMTUNE_PYTHON: join(bin, `${SECRET}-python`),
  OOMTUNE_REDIS_URL: `redis://${SECRET}:hunter-${SECRET}@${SECRET}.example:6390`,
  HF_TOKEN: `hf_${SECRET}0123456789`,
  USER: `${SECRET}-user`,
  CUDA_VISIBLE_DEVICES: `GPU-${SECRET}`,
  [`${SECRET.toUpperCase()}_KEY`]: 'of a project',
};
const call = async (...args: string[]) => {
  const { stdout, stderr } = await run(PROGRAM, ['doctor', '--report', ...args], { env, cwd: folder });
  return { stdout, stderr };
};

beforeAll(() => {
  for (const made of [home, bin]) mkdirSync(made, { recursive: true, mode: 0o700 });
  symlinkSync(process.execPath, join(bin, 'node'));
  // its version is what the report is for, and where it stands is not
  writeFileSync(env.OOMTUNE_PYTHON, `#!/bin/sh\nexec '${PYTHON}' "$@"\n`);
  writeFileSync(join(bin, 'redis-server'), `#!/bin/sh\necho 'Redis server v=7.0.15 sha=${SECRET}'\n`);
  for (const name of ['redis-server', `${SECRET}-python`]) chmodSync(join(bin, name), 0o755);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('doctor --report', () => {
  it('tells versions and checks', async () => {
    const { stdout } = await call();
    expect(stdout).toMatch(/^oomtune +\d+\.\d+\.\d+$/m);
    expect(stdout).toMatch(/^platform +linux \w+, /m);
    expect(stdout).toMatch(/^redis-server +ok: \((path|hidden)\) 7\.0\.15$/m);
    expect(stdout).toMatch(/^torch +ok: \((path|hidden)\) has torch \d/m);
    expect(stdout).toMatch(/^redis +failed$/m);
    expect(stdout).toMatch(
      /^variables +CUDA_VISIBLE_DEVICES OOMTUNE_HOME OOMTUNE_HOST OOMTUNE_PYTHON OOMTUNE_REDIS_URL$/m,
    );
  });

  it('holds nothing of what was planted', async () => {
    for (const { stdout, stderr } of [await call(), await call('--json')]) {
      for (const text of [stdout, stderr]) {
        expect(text.toLowerCase()).not.toContain(SECRET);
        expect(text).not.toContain(hostname());
        expect(text).not.toMatch(new RegExp(`\\b${userInfo().username}\\b`));
        expect(text).not.toContain(tmpdir());
      }
    }
  });

  it('is one document with --json', async () => {
    const report = verbDocuments['doctor-report'].parse(JSON.parse((await call('--json')).stdout));
    expect(report.checks.map(({ check }) => check)).toContain('redis');
    expect(report.checks.find(({ check }) => check === 'redis')?.found).toBeNull();
  });

  it('hides what is in the words of a check that is told: paths with spaces, addresses, values', () => {
    const versions = { oomtune: '1', node: '1', addon: null, supervisor: null, hook: null, driver: null };
    const found = [
      `no room at ${home}: 3 GiB free`,
      `Tried: /opt/${SECRET}/lib.so (needs GLIBC_2.38); ~/${SECRET}`,
      `answers at rediss://${SECRET}@host:1/`,
      `hf_${SECRET}0123456789 was set`,
    ];
    const findings = found.map((one) => ({ check: 'native', status: 'failed' as const, found: one, remedy: null }));
    const { checks } = bugReport({ versions, findings, devices: [] }, env);
    expect(checks.map((one) => one.found)).toEqual([
      'no room at (hidden): 3 GiB free',
      'Tried: (path) (needs GLIBC_2.38); (path)',
      'answers at (address)',
      '(hidden) was set',
    ]);
  });
});
