import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { OomtuneError } from '../../src/common/errors.js';
import { jobEnvironment } from '../../src/worker/environment.js';

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
  it('lets through what programs need and keeps secrets and the daemon’s own settings back', () => {
    expect(jobEnvironment(bare, from)).toEqual({
      PATH: '/bin',
      HOME: '/home/ada',
      CUDA_VISIBLE_DEVICES: '1',
      HF_HOME: '/cache',
    });
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

  it.each([
    ['a name that is none', { ...bare, env: ['1A=b'] }],
    ['a file that is not there', { ...bare, envFile: 'no-such-file' }],
  ])('refuses %s', (_, options) => {
    expect(() => jobEnvironment(options, {})).toThrow(OomtuneError);
  });
});
