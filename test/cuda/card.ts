import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildNative, passes } from '../native/build.js';

export const MiB = 1024 ** 2;
export const GiB = 1024 ** 3;
const UUIDS = [0, 1].map((n) => `GPU-aa000000-0000-0000-0000-00000000000${n}`);
const TARGETS = [
  'oomtune_cuda',
  'oomtune_nvml',
  'oomtune_fake_cuda',
  'oomtune_fake_cuda_old',
  'oomtune_fake_cuda_new',
  'oomtune_fake_nvml',
  'oomtune-driver-program',
  'oomtune-ledger',
];

/** The stand-ins, the pretended card and the program, built plainly or under sanitizers. */
export function buildCard(kind: 'plain' | 'address' | 'thread' | 'aarch64'): Promise<string> {
  return buildNative(kind, TARGETS);
}

export interface Setting {
  /** Bytes of each device that the ledger knows; null: it counts, and refuses nothing. */
  budget?: number | null;
  /** How the stand-in comes into the process: LD_PRELOAD, or found by name on LD_LIBRARY_PATH. */
  route?: 'preload' | 'path';
  /** `now`, `old` (lacks newer functions), `new` (has functions that the stand-in cannot know) or `none`. */
  driver?: 'now' | 'old' | 'new' | 'none';
  /** Two devices, named in the ledger by their uuids. */
  two?: boolean;
  ledger?: boolean;
  /** What starts the programs, where they are for another machine. */
  emulator?: string[];
  env?: Record<string, string>;
}

export interface LedgerDocument {
  refused: number;
  blind: number;
  processes: number;
  devices: { index: number; live: number; peak: number; overhead: number; kinds: Record<string, number> }[];
  refusals: { api: string; size: number; live: number; budget: number; device: number; by: 'budget' | 'driver' }[];
}

/**
 * Runs one scenario of native/test/driver under the stand-in, on a pretended card of 1 GiB whose contexts take 100 MiB,
 * and reads the ledger afterwards. Throws, with what the program said, if the scenario does not hold.
 */
export async function scenario(folder: string, name: string, setting: Setting = {}): Promise<LedgerDocument> {
  const { budget = 512 * MiB, route = 'preload', driver = 'now', two = false, ledger = true, env = {} } = setting;
  const started = (program: string): [string, ...string[]] =>
    [...(setting.emulator ?? []), join(folder, program)] as never;
  const place = mkdtempSync(join(tmpdir(), 'oomtune-card-'));
  try {
    const file = join(place, 'ledger');
    const amount = budget === null ? 'none' : String(budget);
    const devices = two ? UUIDS.flatMap((uuid, n) => [String(n + 1), amount, uuid]) : ['1', amount, '-'];
    const [tool, ...before] = started('oomtune-ledger');
    execFileSync(tool, [...before, 'create', file, ...devices]);
    const standIns = join(folder, 'cuda');
    const [program, ...words] = started('oomtune-driver-program');
    await passes(program, [...words, name], {
      FAKE_STATE: join(place, 'card'),
      OOMTUNE_CUDA_DRIVER: driver === 'none' ? '/nonexistent' : join(folder, 'fake', driver, 'libcuda.so.1'),
      OOMTUNE_NVML_DRIVER: join(folder, 'fake', 'now', 'libnvidia-ml.so.1'),
      ...(ledger ? { OOMTUNE_LEDGER: file } : {}),
      ...(route === 'preload' ? { LD_PRELOAD: join(standIns, 'libcuda.so.1') } : {}),
      LD_LIBRARY_PATH: standIns,
      ...env,
    });
    return JSON.parse(execFileSync(tool, [...before, 'read', file], { encoding: 'utf8' }));
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}
