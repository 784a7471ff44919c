import { beforeAll, describe, test } from 'vitest';
import { buildCard, scenario } from './card.js';
import { CASES } from './cases.js';

// By way of LD_LIBRARY_PATH: a sanitizer's runtime has to come first in LD_PRELOAD.
describe.each([
  ['address and undefined-behaviour sanitizers', 'address'],
  ['the thread sanitizer', 'thread'],
] as const)('the stand-in for libcuda under %s', (_, kind) => {
  let folder: string;
  beforeAll(async () => {
    folder = await buildCard(kind);
  }, 900_000);

  test.each(CASES)('$holds', async ({ name, setting }) => {
    await scenario(folder, name, { route: 'path', ...setting });
  });
});
