import { expect, test, vi } from 'vitest';
import { asOomtuneError } from '../../src/cli/errors.js';
import { homePath } from '../../src/common/home.js';

vi.mock('node:os', async (original) => ({
  ...(await original<typeof import('node:os')>()),
  homedir: () => {
    throw Object.assign(new Error('A system error occurred: uv_os_homedir returned ENOENT'), {
      code: 'ERR_SYSTEM_ERROR',
    });
  },
}));

test('who has neither HOME nor an entry in /etc/passwd is told to set OOMTUNE_HOME', () => {
  vi.stubEnv('OOMTUNE_HOME', '');
  vi.stubEnv('XDG_STATE_HOME', '');
  expect(homePath).toThrow(
    expect.objectContaining({ code: 'OOMTUNE_HOME_UNUSABLE', remedy: expect.stringContaining('Set OOMTUNE_HOME') }),
  );
  for (const code of ['ENOSPC', 'EACCES', undefined])
    expect(asOomtuneError(Object.assign(new Error('another'), { code, path: '/' }), null).code).toBe(
      'OOMTUNE_INTERNAL',
    );
  vi.stubEnv('XDG_STATE_HOME', 'relative');
  expect(homePath).toThrow(expect.objectContaining({ code: 'OOMTUNE_HOME_UNUSABLE' })); // as if it were not set
  vi.stubEnv('XDG_STATE_HOME', '/state');
  expect(homePath()).toBe('/state/oomtune');
  vi.stubEnv('OOMTUNE_HOME', '/elsewhere');
  expect(homePath()).toBe('/elsewhere');
});
