import { describe, expect, test } from 'vitest';
import { checkSeconds, graceSeconds, longestEndMs, longestStartMs, longWaitMs } from '../../src/common/bounds.js';
import { logLevel } from '../../src/common/log-level.js';

describe('a variable in seconds', () => {
  test.each([
    ['', 25],
    ['55', 55],
    ['0.5', 0.5],
    ['0', 0],
    ['55s', 55],
    [' 2M ', 120],
    ['0:01:30', 90],
  ])('%j is read', (given, seconds) => {
    checkSeconds({ OOMTUNE_GRACE_SECONDS: given });
    expect(graceSeconds({ OOMTUNE_GRACE_SECONDS: given })).toBe(seconds);
  });

  test.each([
    ['OOMTUNE_GRACE_SECONDS', '-1'],
    ['OOMTUNE_GRACE_SECONDS', '25 seconds'],
    ['OOMTUNE_START_SECONDS', '0'],
    ['OOMTUNE_START_SECONDS', 'soon'],
    ['OOMTUNE_END_SECONDS', '1e9'],
    ['OOMTUNE_NOTIFY_WAIT_SECONDS', 'x'],
    ['OOMTUNE_RESTART_SECONDS', 'never'],
  ])('%s=%s is refused by its name', (name, given) => {
    expect(() => checkSeconds({ [name]: given })).toThrow(new RegExp(`${name} .*"${given}"`));
  });

  test('each has its own', () => {
    expect(longestStartMs({ OOMTUNE_START_SECONDS: '10m' })).toBe(600_000);
    expect(longestEndMs({ OOMTUNE_GRACE_SECONDS: '0' })).toBe(35_000);
    expect(longestEndMs({ OOMTUNE_END_SECONDS: '1m' })).toBe(60_000);
    expect(longWaitMs({ OOMTUNE_NOTIFY_WAIT_SECONDS: '1h' })).toBe(3_600_000);
  });
});

test('OOMTUNE_LOG is a level in letters of any case', () => {
  expect([logLevel('info', {}), logLevel('warn', { OOMTUNE_LOG: 'DEBUG' })]).toEqual(['info', 'debug']);
  expect(() => logLevel('warn', { OOMTUNE_LOG: 'loud' })).toThrow(/OOMTUNE_LOG.*silent, got "loud"/);
});
