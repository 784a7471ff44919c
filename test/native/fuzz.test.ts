import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { buildNative, passes } from './build.js';

const SEEDS = join(import.meta.dirname, '..', '..', 'native', 'test', 'fuzz', 'seeds');
const TARGETS = ['spec', 'ledger', 'text'] as const;

/** The same changes of the same seeds each time; native/test/fuzz/CMakeLists.txt says how to let a fuzzer look for more. */
const ROUNDS = { spec: 20_000, ledger: 1_000, text: 20_000 };

let folder: string;
beforeAll(async () => {
  folder = await buildNative(
    'address',
    TARGETS.map((target) => `oomtune-fuzz-${target}`),
  );
}, 900_000);

describe('whatever bytes come', () => {
  test.each(TARGETS)('the %s is read without harm', async (target) => {
    const seeds = readdirSync(join(SEEDS, target)).map((name) => join(SEEDS, target, name));
    const said = await passes(join(folder, `oomtune-fuzz-${target}`), [String(ROUNDS[target]), ...seeds]);
    expect(said).toContain(`${ROUNDS[target]} changes of them held`);
  });
});
