import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { passes } from '../native/build.js';
import { buildCard, GiB } from './card.js';

const JOB = join(import.meta.dirname, '..', '..', 'bench', 'cuda', 'jobs', 'calls.py');
let folder: string;
beforeAll(async () => {
  folder = await buildCard('plain');
}, 600_000);

/** What bench/cuda measures on a GPU, on the pretended card: that the measurement itself works. */
test.each([
  ['sparse', 1],
  ['green', 1],
  ['graphs', 2],
  ['register', 0],
  ['heap', 1],
  ['pools', 1],
  ['first', 1],
])('the ledger goes with NVML through %s', async (kind, refused) => {
  const place = mkdtempSync(join(tmpdir(), 'oomtune-calls-'));
  try {
    const file = join(place, 'ledger');
    const nvml = join(folder, 'fake', 'now', 'libnvidia-ml.so.1');
    execFileSync(join(folder, 'oomtune-ledger'), ['create', file, '1', String(3 * GiB), '-']);
    const said = await passes(process.env.OOMTUNE_PYTHON ?? 'python3', [JOB, kind, nvml, '--bare'], {
      FAKE_STATE: join(place, 'card'),
      FAKE_CAPACITY: String(16 * GiB),
      OOMTUNE_CUDA_DRIVER: join(folder, 'fake', 'now', 'libcuda.so.1'),
      OOMTUNE_NVML_DRIVER: nvml,
      OOMTUNE_LEDGER: file,
      LD_PRELOAD: join(folder, 'cuda', 'libcuda.so.1'),
      LD_LIBRARY_PATH: join(folder, 'cuda'),
    });
    const { steps, ...report } = JSON.parse(said);
    expect(report).toEqual({ kind, torch: null, context: 100 * 1024 ** 2 });
    expect(steps.filter((step: { agrees: boolean }) => !step.agrees)).toEqual([]);
    expect(steps.at(-1)).toMatchObject({ refused });
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
});
