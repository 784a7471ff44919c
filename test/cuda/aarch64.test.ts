import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { armEmulator } from '../native/build.js';
import { newestVersions } from '../native/elf.js';
import { buildCard, scenario } from './card.js';
import { CASES, OF_NEIGHBOURS } from './cases.js';

const emulator = armEmulator();
if (emulator)
  console.warn(`Skipped on the emulator: ${OF_NEIGHBOURS.join(', ')}, as it tells processes wrong start times.`);

describe.skipIf(!emulator)('the stand-in for libcuda on 64-bit Arm', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await buildCard('aarch64');
  }, 900_000);

  test.each(['libcuda.so.1', 'libnvidia-ml.so.1'])(
    '%s loads with glibc 2.17, the first of this architecture',
    (name) => {
      expect(newestVersions(join(folder, 'cuda', name))).toEqual({ GLIBC: 17 });
    },
  );

  test.each(CASES.filter(({ name }) => !OF_NEIGHBOURS.includes(name)))('$holds', async ({ name, setting }) => {
    await scenario(folder, name, { ...setting, emulator: emulator as string[] });
  });
});
