import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { loadNative, type NativeInventory } from '../../src/runtime/native.js';
import { buildNative } from './build.js';

const GiB = 1024 ** 3;
const addon = join(loadNative().folder, 'oomtune.node');
let library: string;

beforeAll(async () => {
  library = join(await buildNative('plain', ['oomtune_fake_gpus']), 'fake-gpus');
}, 600_000);

/** What the inventory says on one of the machines of native/test/fake_gpus.cpp. */
function inventoryOf(machine: string): NativeInventory {
  const script = `require(${JSON.stringify(addon)}).inventory().then((i) => console.log(JSON.stringify(i)))`;
  const env = { LD_LIBRARY_PATH: library, FAKE_GPUS: machine };
  return JSON.parse(execFileSync(process.execPath, ['-e', script], { env, encoding: 'utf8' }));
}

describe('the inventory', () => {
  test('tells a GPU and who holds its memory', () => {
    expect(inventoryOf('whole')).toEqual({
      found: true,
      driver: '580.95.05',
      error: '',
      gpus: [
        {
          index: 0,
          mig: -1,
          uuid: 'GPU-1',
          parent: '',
          bus: '0000:a1:00.0',
          model: 'NVIDIA Fake',
          fault: '',
          total_bytes: 80 * GiB,
          used_bytes: 5 * GiB,
          utilisation_pct: 87,
          temperature_c: 61,
          power_w: 412.5,
          processes_told: true,
          processes: [
            { pid: 11, name: '/usr/bin/python3', used_bytes: 4 * GiB },
            { pid: 12, name: '', used_bytes: null },
          ],
        },
      ],
    });
  });

  test('lists the parts of a divided GPU in its place', () => {
    const { gpus } = inventoryOf('mig');
    const bus = '0000:a1:00.0';
    expect(gpus.map(({ uuid, mig, parent, bus, total_bytes }) => ({ uuid, mig, parent, bus, total_bytes }))).toEqual([
      { uuid: 'MIG-100', mig: 0, parent: 'GPU-1', bus, total_bytes: 40 * GiB },
      { uuid: 'MIG-102', mig: 2, parent: 'GPU-1', bus, total_bytes: 40 * GiB },
    ]);
    // What the whole GPU does is not told of a part
    expect(
      gpus.map(({ utilisation_pct, temperature_c, power_w }) => [utilisation_pct, temperature_c, power_w]),
    ).toEqual([
      [null, null, null],
      [null, null, null],
    ]);
  });

  test('tells broken GPUs from such as are kept from us', () => {
    expect(inventoryOf('lost').gpus.map(({ index, fault }) => ({ index, fault }))).toEqual([
      { index: 0, fault: 'the GPU has fallen off the bus' },
      { index: 1, fault: 'the driver asks for a reset of the GPU' },
      { index: 2, fault: '6 uncorrected ECC errors since the driver was loaded' },
    ]);
  });

  test('says why the driver does not answer', () => {
    expect(inventoryOf('down')).toMatchObject({ found: false, error: 'Driver/library version mismatch', gpus: [] });
  });

  test('is empty where there is no driver', () => {
    const script = `require(${JSON.stringify(addon)}).inventory().then((i) => console.log(i.gpus.length))`;
    expect(execFileSync(process.execPath, ['-e', script], { encoding: 'utf8' })).toMatch(/^\d+\n$/);
  });
});
