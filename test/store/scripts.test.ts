import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { runScript, type ScriptName } from '../../src/store/scripts.js';
import { DIST, ROOT, useHome } from './home.js';

useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore({});
});
afterAll(() => store.close());

const files = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.lua'))
    .sort();
const LUA = join(ROOT, 'src', 'store', 'lua');

const SCRIPTS = files(LUA)
  .filter((path) => !path.endsWith('prelude.lua'))
  .map((path) => path.slice(0, -'.lua'.length) as ScriptName)
  .sort();

test('every script that is called has a file, and every file is called', () => {
  const sources = readdirSync(join(ROOT, 'src', 'store')).filter((file) => file.endsWith('.ts'));
  const called = sources.flatMap((file) => {
    const text = readFileSync(join(ROOT, 'src', 'store', file), 'utf8');
    return [...text.matchAll(/'((?:config|host|job|lease|queue|record)\/[\w-]+)'/g)].map(([, name]) => name);
  });
  expect([...new Set(called)].sort()).toEqual(SCRIPTS);
});

test('the built program has the same scripts beside it', () => {
  const built = join(DIST, 'program', 'lua');
  expect(files(built)).toEqual(files(LUA));
  for (const path of files(LUA)) {
    expect(readFileSync(join(built, path), 'utf8'), path).toBe(readFileSync(join(LUA, path), 'utf8'));
  }
});

test('a script that Redis has forgotten is sent anew', async () => {
  const { redis } = store.connection;
  const keys = [store.keys.host('h'), store.keys.hosts];
  expect(await runScript(redis, 'host/forget', keys, ['h'])).toBe(1);
  await redis.script('FLUSH');
  expect(await runScript(redis, 'host/forget', keys, ['h'])).toBe(1);
});

test.each(SCRIPTS)('Redis compiles %s', async (name) => {
  const { redis } = store.connection;
  // what it answers to nothing at all is no matter; that it cannot be compiled would be
  const answer = await runScript(redis, name, [], []).catch((error: unknown) => String(error));
  expect(String(answer)).not.toMatch(/compiling script|global variable/);
});
