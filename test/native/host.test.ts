import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
import { loadNative } from '../../src/runtime/native.js';
import { launchSpec, PYTHON } from '../runtime/helpers.js';
import { buildNative } from './build.js';

const MiB = 1024 ** 2;
const runtime = createRuntime();
const { folder } = loadNative();
let programs: string;

beforeAll(async () => {
  programs = await buildNative('plain', ['oomtune-host-program', 'oomtune_test_allocator']);
}, 600_000);

async function run(argv: string[], budgetBytes: number | null) {
  const started = await runtime.launch(launchSpec(argv, { budgetBytes }));
  const exit = await started.wait();
  return { exit, log: readFileSync(started.logFile, 'utf8') };
}

describe('the host preload', () => {
  test('counts and gates every way to allocate, through forks, clones and thread storms', async () => {
    const { exit, log } = await run([join(programs, 'oomtune-host-program')], 64 * MiB);
    expect(log).toBe('');
    expect(exit).toMatchObject({ code: 0, ledger: { blind: false, devices: [{ live_bytes: 0 }] } });
    expect(exit.ledger?.devices[0]?.peak_bytes).toBeLessThanOrEqual(64 * MiB);
    expect(exit.ledger?.refused).toBeGreaterThan(0);
  });

  test('shows the job its own calls alone', () => {
    const table = execFileSync('nm', ['-D', '--defined-only', join(folder, 'liboomtune_host.so')], {
      encoding: 'utf8',
    });
    const names = table
      .trim()
      .split('\n')
      .map((line) => line.split(' ').at(-1));
    expect(names.sort()).toEqual(
      [
        ...['aligned_alloc', 'calloc', 'free', 'malloc', 'memalign', 'posix_memalign', 'pvalloc'],
        ...['realloc', 'reallocarray', 'valloc', 'free_sized', 'free_aligned_sized'],
        ...['oomtune_adopt', 'oomtune_budget', 'oomtune_disown', 'oomtune_live', 'oomtune_peak', 'oomtune_refused'],
        'oomtune_reset_peak',
      ].sort(),
    );
  });

  test('lets a job pass that has no ledger', () => {
    const env = { LD_PRELOAD: join(folder, 'liboomtune_host.so'), PATH: process.env.PATH ?? '' };
    const script = 'b = bytearray(100 << 20); print(len(b))';
    for (const ledger of ['', '/no/such/file', '/etc/passwd', '/dev/null']) {
      const out = execFileSync(PYTHON, ['-c', script], { encoding: 'utf8', env: { ...env, OOMTUNE_LEDGER: ledger } });
      expect(out.trim()).toBe(String(100 * MiB));
    }
  });

  test('stands above an allocator that the user preloads', async (context) => {
    const other = ['libjemalloc.so.2', 'libtcmalloc_minimal.so.4']
      .map((name) => `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu/${name}`)
      .find((file) => existsSync(file));
    if (!other) {
      console.warn('Skipped: neither jemalloc nor tcmalloc is installed.');
      context.skip('neither jemalloc nor tcmalloc is installed');
      return;
    }
    const spec = launchSpec([join(programs, 'oomtune-host-program')], { budgetBytes: 64 * MiB });
    const started = await runtime.launch({ ...spec, env: { ...spec.env, LD_PRELOAD: other } });
    expect(await started.wait()).toMatchObject({ code: 0 });
  });
});

describe('an allocator that does not tell the sizes of its blocks', () => {
  test('is never asked for them in the words of another', async () => {
    const spec = launchSpec(['ls', '-l', '/etc'], { budgetBytes: 64 * MiB });
    const other = join(programs, 'liboomtune_test_allocator.so');
    const started = await runtime.launch({ ...spec, env: { ...spec.env, LD_PRELOAD: other } });
    expect(await started.wait()).toMatchObject({ code: 0, signal: null });
  });
});

describe('processes of one launch', () => {
  test('share the budget, and what a killed one held is to be had again', async () => {
    const script = `
import os, signal, torch
def fits(mib):
    try: torch.empty(mib << 20, dtype=torch.uint8)
    except RuntimeError: return False
    return True
ready, told = os.pipe()
child = os.fork()
if child == 0:
    held = torch.empty(100 << 20, dtype=torch.uint8)
    os.write(told, b"x")
    signal.pause()
os.read(ready, 1)
assert not fits(120), "the child's bytes are not counted"
assert fits(80)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
assert fits(120), "the child's bytes are not taken back"
print("shared")
`;
    const { exit, log } = await run([PYTHON, '-c', script], 200 * MiB);
    expect(log).toBe('shared\n');
    expect(exit).toMatchObject({ code: 0, ledger: { refused: 1, devices: [{ live_bytes: 0 }] } });
  });

  test('are data-loader workers too, whose batches count', async () => {
    const script = `
import torch
from torch.utils.data import DataLoader, Dataset
class Big(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.zeros(20 << 20, dtype=torch.uint8)[:4].clone() + i
total = sum(int(batch.sum()) for batch in DataLoader(Big(), batch_size=2, num_workers=2))
assert total == 4 * 28, total
print("loaded")
`;
    const free = await run([PYTHON, '-c', script], null);
    expect(free.log).toBe('loaded\n');
    expect(free.exit.ledger?.devices[0]?.peak_bytes).toBeGreaterThan(20 * MiB);
    const tight = await run([PYTHON, '-c', script], 18 * MiB);
    expect(tight.log).toContain('DefaultCPUAllocator');
    expect(tight.log).toContain('DataLoader worker process');
    expect(tight.exit.code).toBe(1);
  });
});
