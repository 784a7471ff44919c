import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../store/home.js';

/**
 * A signal of these is held by nothing but what listens to it: the garbage collector takes it, and whoever waits for it waits for
 * ever. src/common/within.ts is for that.
 */
test('no source waits for a signal that nobody holds', () => {
  const files = ['src', 'web', 'bin'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.(ts|js|mjs)$/.test(file) && !file.includes('node_modules'))
      .map((file) => join(folder, file)),
  );
  expect(files.length).toBeGreaterThan(200);
  const found = files.filter((file) => /AbortSignal\.(any|timeout)\(/.test(readFileSync(join(ROOT, file), 'utf8')));
  expect(found.filter((file) => file !== 'src/common/within.ts')).toEqual([]);
});
