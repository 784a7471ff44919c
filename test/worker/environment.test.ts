import { execFileSync } from 'node:child_process';
import { mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { OomtuneError } from '../../src/common/errors.js';
import { boundToHost, foreignEnvironment, jobEnvironment } from '../../src/worker/command/environment.js';

const from = {
  PATH: '/bin',
  HOME: '/home/ada',
  CUDA_VISIBLE_DEVICES: '1',
  HF_HOME: '/cache',
  HF_TOKEN: 'hf_secret',
  AWS_SECRET_ACCESS_KEY: 'aws',
  OOMTUNE_REDIS_URL: 'redis://:password@host',
  EXPERIMENT: 'x',
};
const bare = { env: [], envFile: null, cwd: '/' };

describe('the environment of a job', () => {
  it('is all of the user’s own but what oomtune itself sets in a job', () => {
    const nested = { ...from, OOMTUNE_RESUME: '1', OOMTUNE_HOOK: 'apply', OOMTUNE_MICRO_BATCH: '4', ABSENT: undefined };
    expect(jobEnvironment(bare, nested)).toEqual(from);
  });

  it('has a PWD that follows --cwd, and that of the shell where it leads to the same folder', () => {
    const folder = mkdtempSync(join(tmpdir(), 'oomtune-env-'));
    const link = `${folder}-link`;
    symlinkSync(folder, link);
    expect(jobEnvironment({ ...bare, cwd: folder }, { PWD: link, OLDPWD: '/before' })).toEqual({
      PWD: link,
      OLDPWD: '/before',
    });
    expect(jobEnvironment({ ...bare, cwd: folder }, { PWD: '/gone', OLDPWD: '/before' })).toEqual({
      PWD: folder,
      OLDPWD: '/gone',
    });
    expect(jobEnvironment({ ...bare, cwd: folder, env: ['PWD=/mine'] }, { PWD: '/tmp' }).PWD).toBe('/mine');
  });

  it('of a daemon’s lets through what programs need, and keeps secrets and the daemon’s own settings back', () => {
    expect(foreignEnvironment(bare, { ...from, OMPI_MCA_plm: 'isolated', PMIX_MCA_gds: 'hash' })).toEqual({
      OMPI_MCA_plm: 'isolated',
      PMIX_MCA_gds: 'hash',
      PATH: '/bin',
      HOME: '/home/ada',
      CUDA_VISIBLE_DEVICES: '1',
      HF_HOME: '/cache',
    });
  });

  it('names what another host would do without, and no trifles of the session', () => {
    const session = { SHLVL: '1', SSH_CLIENT: '::1', LS_COLORS: 'x', _: '/bin/x', OOMTUNE_HOME: '/x', DISPLAY: ':0' };
    const names = ['AWS_SECRET_ACCESS_KEY', 'HF_TOKEN', 'EXPERIMENT'];
    expect(boundToHost(jobEnvironment(bare, { ...from, ...session }))).toEqual(names);
  });

  it('takes named variables from where the job is launched, and values as given', () => {
    const environment = jobEnvironment({ ...bare, env: ['HF_TOKEN', 'EXPERIMENT=y=z', 'ABSENT'] }, from);
    expect(environment).toMatchObject({ HF_TOKEN: 'hf_secret', EXPERIMENT: 'y=z' });
    expect(environment).not.toHaveProperty('ABSENT');
  });

  it('reads --env-file relative to --cwd; --env wins', () => {
    const folder = mkdtempSync(join(tmpdir(), 'oomtune-env-'));
    writeFileSync(join(folder, '.env'), '# comment\n\nexport A="one two"\nB=\'x\'\nC=3\n');
    const environment = jobEnvironment({ env: ['C=4'], envFile: '.env', cwd: folder }, {});
    expect(environment).toEqual({ A: 'one two', B: 'x', C: '4' });
  });

  it('takes a name without a value in --env-file from where the job is launched, as --env does', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'oomtune-env-')), 'env');
    writeFileSync(file, 'EXPERIMENT\nABSENT\n');
    expect(jobEnvironment({ ...bare, envFile: file }, from)).toMatchObject({ EXPERIMENT: 'x' });
    expect(jobEnvironment({ ...bare, envFile: file }, from)).not.toHaveProperty('ABSENT');
  });

  it('names the line of --env-file that it cannot read, and does not show it', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'oomtune-env-')), 'env');
    writeFileSync(file, 'A=1\n\n-----BEGIN hunter2\n');
    expect(() => jobEnvironment({ ...bare, envFile: file }, {})).toThrow(`Line 3 of ${file} does not start with`);
    writeFileSync(file, 'A=1\0B=2\n');
    expect(() => jobEnvironment({ ...bare, envFile: file }, {})).toThrow('Line 1 of');
  });

  it('refuses a pipe for --env-file, which could be read only once, without waiting for it', () => {
    const pipe = join(mkdtempSync(join(tmpdir(), 'oomtune-env-')), 'pipe');
    execFileSync('mkfifo', [pipe]);
    expect(() => jobEnvironment({ ...bare, envFile: pipe }, {})).toThrow(OomtuneError);
  });

  it.each([
    ['a name that is none', { ...bare, env: ['1A=b'] }],
    ['a file that is not there', { ...bare, envFile: 'no-such-file' }],
  ])('refuses %s', (_, options) => {
    expect(() => jobEnvironment(options, {})).toThrow(OomtuneError);
  });
});
