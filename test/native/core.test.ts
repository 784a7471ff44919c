import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { buildNative, hasGoogletest, passes } from './build.js';

const BUILD_MS = 600_000;
const missing = 'googletest is not installed (apt-get install libgtest-dev)';
if (!hasGoogletest) console.warn(`Skipped: the native tests, as ${missing}.`);

describe.skipIf(!hasGoogletest)('the native parts', () => {
  test(
    'hold under the address and undefined-behaviour sanitizers',
    async () => {
      const folder = await buildNative('address', ['oomtune-tests', 'oomtune-thread-tests']);
      const env = { ASAN_OPTIONS: 'detect_leaks=1', UBSAN_OPTIONS: 'print_stacktrace=1' };
      expect(await passes(join(folder, 'oomtune-tests'), [], env)).toMatch(/PASSED {2}\] \d\d+ tests/);
      expect(await passes(join(folder, 'oomtune-thread-tests'), [], env)).toContain('PASSED');
    },
    BUILD_MS,
  );

  test(
    'hold under the thread sanitizer',
    async () => {
      const folder = await buildNative('thread', ['oomtune-thread-tests']);
      expect(await passes(join(folder, 'oomtune-thread-tests'))).toContain('PASSED');
    },
    BUILD_MS,
  );
});
