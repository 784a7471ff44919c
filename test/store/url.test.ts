import { expect, test } from 'vitest';
import type { OomtuneError } from '../../src/common/errors.js';
import { parseRedisUrl, withoutPassword } from '../../src/store/url.js';

const error = (text: string): OomtuneError | null => {
  try {
    parseRedisUrl(text);
  } catch (error) {
    return error as OomtuneError;
  }
  return null;
};

const message = (text: string): string => error(text)?.message ?? '';

test.each([
  ['redis://', { host: '127.0.0.1', port: 6379, db: 0 }, 'redis://127.0.0.1:6379', true],
  ['redis://h:1/2', { host: 'h', port: 1, db: 2 }, 'redis://h:1/2', false],
  ['redis://u:p%40ss@10.0.0.1', { username: 'u', password: 'p@ss' }, 'redis://10.0.0.1:6379', false],
  ['redis://localhost', { host: 'localhost' }, 'redis://localhost:6379', true],
  ['redis://[::1]:7', { host: '::1', port: 7 }, 'redis://[::1]:7', true],
  ['rediss://:secret@h', { password: 'secret' }, 'rediss://h:6379', true],
  ['rediss://h', { host: 'h' }, 'rediss://h:6379', false],
  ['unix:///run/r.sock', { path: '/run/r.sock', db: 0 }, 'unix:///run/r.sock', true],
  [
    'unix:///run/my%20r.sock?db=3&password=x',
    { path: '/run/my r.sock', db: 3, password: 'x' },
    'unix:///run/my r.sock?db=3',
    true,
  ],
])('%s', (text, options, shown, guarded) => {
  const target = parseRedisUrl(text);
  expect(target.options).toMatchObject(options);
  expect(target).toMatchObject({ shown, guarded });
});

test.each([
  'unix://relative.sock',
  'unix://host/path',
  'unix:///',
  'http://h',
  'h:6379',
  'redis://h/x',
  'redis://a:%zz@h',
  '',
])('refuses %s, saying why', (text) => expect(message(text)).toContain('Expected a Redis URL'));

test('a password is in no message', () => {
  for (const text of [
    'http://user:hunter2@h',
    'redis://user:hunter2@h/x',
    'redis://user:hunter2%zz@h',
    'unix://host/p?password=hunter2',
    'redis://:Ab/hunter2@h:6379/0',
    'redis://user:6379/hunter2@h/0',
    'redis://user:6379?hunter2@h',
    'redis://user:6379#hunter2@h',
    'redis://user:6379/x@hunter2@h',
    'unix://host/p?password=x&hunter2',
  ]) {
    expect(message(text)).not.toBe('');
    expect(message(text)).not.toContain('hunter2');
    expect(withoutPassword(text)).not.toContain('hunter2');
  }
});

test('a password that ends early: the remedy says how its signs are written', () => {
  expect(error('redis://:Ab/c@h')?.remedy).toContain('%2F for /');
  expect(error('redis://h/x')?.remedy).not.toContain('%2F');
});
