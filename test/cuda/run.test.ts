import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildCard, MiB } from './card.js';

const run = promisify(execFile);
const CLI = join(import.meta.dirname, '..', '..', 'bin', 'oomtune.js');
const home = mkdtempSync(join(tmpdir(), 'oomtune-cuda-run-'));
let folder: string;

beforeAll(async () => {
  folder = await buildCard('plain');
}, 600_000);
afterAll(async () => {
  await oomtune('redis', 'stop');
  rmSync(home, { recursive: true, force: true });
});

/** The whole chain on the pretended card: inventory, supervisor, stand-in, ledger, report. */
function oomtune(...args: string[]): Promise<string> {
  return oomtuneWith({}, ...args);
}

async function oomtuneWith(env: Record<string, string>, ...args: string[]): Promise<string> {
  const { stdout } = await run(process.execPath, [CLI, ...args], {
    env: {
      ...env,
      PATH: process.env.PATH ?? '',
      OOMTUNE_HOME: home,
      LD_LIBRARY_PATH: join(folder, 'fake', 'now'),
      FAKE_STATE: join(home, 'card'),
    },
  });
  return stdout;
}

describe('a pretended card, by way of the command line', () => {
  test('is listed', async () => {
    const { devices } = JSON.parse(await oomtune('devices', '--json'));
    expect(devices[0]).toMatchObject({
      id: 'cuda:0',
      total_bytes: 1024 * MiB,
      used_bytes: 0,
      figures: 'process',
      first_party_limit: 'none',
    });
  });

  test("says when a job's memory was told by the figures of the whole device, as in a container", async () => {
    const report = join(home, 'container.json');
    const options = [
      '--no-tune',
      '--device',
      'cuda:0',
      '--budget',
      '512MiB',
      '--env',
      'FAKE_STATE',
      '--env',
      'FAKE_NO_PIDS',
    ];
    const command = [join(folder, 'oomtune-driver-program'), 'Linear'];
    await oomtuneWith({ FAKE_NO_PIDS: '1' }, 'run', ...options, '--report', report, '--', ...command);
    expect(JSON.parse(readFileSync(report, 'utf8')).devices).toMatchObject([{ measured_by: 'device' }]);
  });

  test.each([
    ['Refusal', 512 * MiB, 1],
    ['Ranks', 512 * MiB, 4],
    ['Nvml', 200 * MiB, 0],
  ])('holds %s to its budget and reports it', async (scenario, peak, refused) => {
    const report = join(home, `${scenario}.json`);
    const program = join(folder, 'oomtune-driver-program');
    const options = ['--no-tune', '--device', 'cuda:0', '--budget', '512MiB', '--env', 'FAKE_STATE'];
    const said = await oomtune('run', ...options, '--report', report, '--', program, scenario);
    expect(said).toContain(`${scenario} holds`);
    const document = JSON.parse(readFileSync(report, 'utf8'));
    expect(document).toMatchObject({
      exit_code: 0,
      blind: false,
      refused,
      devices: [{ device: 'cuda:0', peak_bytes: peak, budget_bytes: 512 * MiB, measured_by: 'process' }],
    });
    if (refused > 0) {
      expect(document.refusals[0]).toMatchObject({ api: 'cuMemAlloc_v2', size_bytes: 2 * MiB, by: 'budget' });
    }
  });
});
