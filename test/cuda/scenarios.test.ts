import { existsSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { buildCard, MiB, scenario } from './card.js';
import { CASES } from './cases.js';

let folder: string;
beforeAll(async () => {
  folder = await buildCard('plain');
}, 600_000);

describe.each(['preload', 'path'] as const)('the stand-in for libcuda, by way of the %s', (route) => {
  test.each(CASES)('$holds', async ({ name, setting }) => {
    await scenario(folder, name, { route, ...setting });
  });
});

describe('the stand-in for libcuda', () => {
  // The stand-in searches for a driver by itself when the named one is not there: on a machine with a GPU it finds it.
  const real = ['/usr/lib/x86_64-linux-gnu', '/usr/lib64', '/usr/lib/wsl/lib', '/usr/local/nvidia/lib64'].find((at) =>
    existsSync(`${at}/libcuda.so.1`),
  );
  if (real) console.log(`left out: "answers that there is no device without a driver": there is one in ${real}`);
  test.skipIf(real)('answers that there is no device without a driver', async () => {
    await scenario(folder, 'NoDriver', { driver: 'none' });
  });

  test('leaves a record of the refusal for whoever watches', async () => {
    const ledger = await scenario(folder, 'Refusal');
    expect(ledger.refusals).toEqual([
      expect.objectContaining({
        api: 'cuMemAlloc_v2',
        size: 2 * MiB,
        live: 512 * MiB,
        budget: 512 * MiB,
        by: 'budget',
      }),
    ]);
    expect(ledger.devices[0]?.peak).toBe(512 * MiB);
  });

  test('names the call that a graph was refused in', async () => {
    const { refusals } = await scenario(folder, 'GraphCapture');
    expect(refusals).toEqual([expect.objectContaining({ api: 'cuGraphInstantiateWithFlags', by: 'budget' })]);
  });

  test('looks once more at the end of a process', async () => {
    const ledger = await scenario(folder, 'GrowsAtEnd', { env: { FAKE_MODULE: String(64 * MiB) } });
    expect(ledger.devices[0]).toMatchObject({ overhead: 164 * MiB, peak: 164 * MiB });
  });

  test('believes its own count when the driver stops telling', async () => {
    const ledger = await scenario(folder, 'Silent');
    expect(ledger.devices[0]).toMatchObject({ overhead: 100 * MiB, kinds: { async: 64 * MiB } });
  });

  test('leaves what a program leaked to be read after its end', async () => {
    const ledger = await scenario(folder, 'Leak');
    const leaked = 1000 * 64 * 1024;
    // Small blocks share pages of 2 MiB; what the last page has left over is overhead.
    const rest = Math.ceil(leaked / (2 * MiB)) * 2 * MiB - leaked;
    expect(ledger.devices[0]).toMatchObject({ overhead: 100 * MiB + rest, kinds: { classic: leaked } });
  });
});
