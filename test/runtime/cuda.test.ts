import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { beforeAll, describe, expect, test } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
import { buildNative } from '../native/build.js';
import { freshDir, launchSpec } from './helpers.js';

const START = join(import.meta.dirname, '../fixtures/runtime/start.mjs');
const MiB = 1024 ** 2;
let programs: string;

beforeAll(async () => {
  const targets = ['oomtune-driver-program', 'oomtune_fake_cuda', 'oomtune_fake_nvml'];
  programs = await buildNative('plain', targets);
}, 600_000);

/** Launches a program of the driver API on pretended cards; resolves with its launch folder. */
async function launchOnFake(
  devices: string[],
  scenario: string,
  count: number,
): Promise<{ dir: string; said: string }> {
  const fake = join(programs, 'fake', 'now');
  const card = { FAKE_STATE: `${freshDir()}.card`, FAKE_COUNT: String(count) };
  const spec = launchSpec([join(programs, 'oomtune-driver-program'), scenario], {
    devices,
    budgetBytes: 512 * MiB,
    env: {
      ...card,
      OOMTUNE_CUDA_DRIVER: join(fake, 'libcuda.so.1'),
      OOMTUNE_NVML_DRIVER: join(fake, 'libnvidia-ml.so.1'),
    },
  });
  const env = { PATH: process.env.PATH ?? '', LD_LIBRARY_PATH: fake, ...card };
  const child = spawn(process.execPath, [START, JSON.stringify(spec), 'wait'], { env });
  const said = await text(child.stderr);
  if (child.exitCode === null) await once(child, 'exit');
  return { dir: spec.dir, said };
}

describe('a launch on a GPU', () => {
  test('is inside its budget by the stand-in, and its ledger names the device', async () => {
    const { dir, said } = await launchOnFake(['cuda:0'], 'Refusal', 1);
    expect(said).toBe('');
    expect(readFileSync(join(dir, 'log'), 'utf8')).toBe('Refusal holds\n');
    const exit = await (await createRuntime().adopt(dir))?.wait();
    expect(exit).toMatchObject({
      code: 0,
      ledger: {
        refused: 1,
        blind: false,
        refusals: [
          { api: 'cuMemAlloc_v2', size_bytes: 2 * MiB, budget_bytes: 512 * MiB, by: 'budget', device: 'cuda:0' },
        ],
        devices: [{ device: 'cuda:0', peak_bytes: 512 * MiB, budget_bytes: 512 * MiB, live_bytes: 0 }],
      },
    });
  });

  test('that is not on the machine is refused before anything is left behind', async () => {
    const { said } = await launchOnFake(['cuda:1'], 'Refusal', 1);
    expect(said).toContain('There is no device cuda:1 on this machine.');
  });
});
