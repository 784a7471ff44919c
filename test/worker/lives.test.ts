import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JobOptions } from '../../src/contract/options.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'oomtune-lives-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/**
 * Starts the script once more without address space randomisation: torch's tables are hashed by address, and where one of them
 * grows once more than in another process, peaks differ by 128 KiB.
 */
const SAME_ADDRESSES = `
import ctypes, os, sys
libc, no_randomisation = ctypes.CDLL(None), 0x0040000
if not libc.personality(0xffffffff) & no_randomisation:
    libc.personality(no_randomisation)
    os.execv(sys.executable, [sys.executable, *sys.argv])
`;

/** A script that writes down its start, and trains a model, inside of `around`. */
function script({ first = '', before = '', sample = '64', around = '' } = {}): string {
  const path = join(folder, 'train.py');
  const train = `${first}
import os, tempfile, threading
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
open('starts', 'a').write('start\\n')
torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 64), torch.randint(4, (4096,)))
${before}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 8192), nn.Linear(8192, 4)
    def forward(self, x):
        h = torch.tanh(self.a(x))
        kept = torch.ones(len(x), ${sample}) * h[:, :1]
        return self.b(h) + kept.tanh().mean(1, keepdim=True)
`;
  const loop = `
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for x, y in DataLoader(data, batch_size=8, shuffle=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
`;
  writeFileSync(path, train + (around === '' ? loop : around + loop.replace(/^(?=.)/gm, '    ')));
  return path;
}

async function search(path: string, options: Partial<JobOptions> = {}) {
  const bench = workbench('find-batch', [python, path], { budget: '60MiB', cwd: folder, ...options });
  const report = await findBatch(bench.request, bench.deps);
  await bench.noneLeft();
  return { ...report, lives: new Set(report.probes.map((probe) => probe.life)).size };
}

const starts = (): number => readFileSync(join(folder, 'starts'), 'utf8').split('\n').length - 1;

describe('a search in lives of one start', () => {
  it('finds what one in several starts finds, with the same peaks', async () => {
    // What was there before the fork and goes after it is free again, as in a start.
    const early = { before: 'early = [bytearray(4 << 20)]', sample: 'early.clear() or 64' };
    const path = script({ first: SAME_ADDRESSES, ...early });
    const forked = await search(path);
    expect(forked).toMatchObject({ status: 'found', launches: 1 });
    expect(forked.lives).toBe(2);
    expect(starts()).toBe(1);
    const started = await search(path, { fork: false });
    expect(started).toMatchObject({ launches: 2, max_micro_batch: forked.max_micro_batch });
    expect(starts()).toBe(3);
    // After the proof it is the clock that decides which sizes are measured.
    const proof = forked.probes.findIndex((probe) => probe.life === 2) + 1;
    const peaks = (of: typeof forked) =>
      of.probes.slice(0, proof).map((probe) => [probe.micro_batch, probe.life, probe.peak_bytes]);
    expect(peaks(forked)).toEqual(peaks(started));
  });

  it('goes on in another life after one that ran out of memory, and charges it with nothing', async () => {
    // From 100 samples on each takes much more than before: no line predicts it.
    const path = script({ sample: '64 if len(x) < 100 else 40000' });
    const forked = await search(path);
    const outcomes = forked.probes.map((probe) => probe.outcome);
    expect(outcomes).toContain('device_oom');
    expect(forked).toMatchObject({ status: 'found', launches: 1 });
    expect(forked.max_micro_batch).toBeGreaterThan(96);
    expect(starts()).toBe(1);
    const last = forked.probes.findLast((probe) => probe.micro_batch === forked.max_micro_batch);
    expect(last?.peak_bytes).toBeLessThan(40 * 1024 ** 2);
  });

  it('makes no start where a size that a used process took is too large for a fresh one', async () => {
    // In every process but the first each sample takes more.
    const first = `
def first():
    with open('pids', 'a+') as file:
        file.seek(0)
        pids = file.read().split()
        if str(os.getpid()) not in pids:
            file.write('%d ' % os.getpid())
        return not pids or pids[0] == str(os.getpid())
`;
    const report = await search(script({ before: first, sample: '64 if first() else 6000' }));
    expect(report).toMatchObject({ status: 'found', launches: 1 });
    const judged = report.probes.filter((probe) => probe.life === 2);
    expect(judged[0]).toMatchObject({ outcome: 'device_oom' });
    expect(report.max_micro_batch).toBeLessThan(judged[0]?.micro_batch as number);
    expect(report.lives).toBeGreaterThan(2);
    expect(starts()).toBe(1);
  });

  it('goes on with two samples in another life where one cannot be trained on, and blames no variable', async () => {
    const report = await search(script({ before: 'norm = nn.BatchNorm1d(64)', sample: '64 + 0 * len(norm(x))' }));
    expect(report).toMatchObject({ status: 'found', launches: 1 });
    expect(report.probes.slice(0, 2)).toMatchObject([
      { micro_batch: 1, outcome: 'user_error', life: 1 },
      { micro_batch: 2, outcome: 'fit', life: 2 },
    ]);
    expect(report.notes.join()).not.toContain('elsewhere');
    expect(starts()).toBe(1);
  });

  it('measures in a start what a life fails with that follows another', async () => {
    const path = script({
      around: 'with tempfile.TemporaryDirectory() as folder:',
      sample: '64 if len(x) < 100 and os.path.isdir(folder) else 40000 if os.path.isdir(folder) else [].pop()',
    });
    const report = await search(path);
    expect(report.status).toBe('found');
    expect(report.max_micro_batch).toBeGreaterThan(96);
    expect(report.probes.map((probe) => probe.outcome)).not.toContain('user_error');
    expect(starts()).toBe(report.launches);
    expect(report.launches).toBeGreaterThan(1);
  });

  it('starts the command anew where a fork would lack a thread', async () => {
    const path = script({ before: 'threading.Thread(target=threading.Event().wait, daemon=True).start()' });
    expect(await search(path)).toMatchObject({ status: 'found', launches: 2 });
    expect(starts()).toBe(2);
  });

  it('reports what a life died of, with the exit of its launch', async () => {
    const path = script({ sample: '64 if len(x) < 100 else os.kill(os.getpid(), 9)' });
    const report = await search(path);
    expect(report).toMatchObject({ status: 'failed', failure: { class: 'killed' } });
  });

  it('leaves nothing behind when it is interrupted in a life', async () => {
    const bench = workbench('find-batch', [python, script()], { budget: '60MiB', cwd: folder });
    bench.deps.progress = ({ type }) => void (type === 'life' && bench.controller.abort());
    await expect(findBatch(bench.request, bench.deps)).rejects.toThrow();
    expect(starts()).toBe(1);
    await bench.noneLeft();
  });
});

describe('a search by a flag in lives of one start', () => {
  /** A loader whose batches cannot be set: each size takes a process of its own. */
  const FIXED = 'batch_sampler=[list(range(asked.size))] * 20';

  /** A script whose batch is a flag; `first` runs before it imports torch, `step` before each step. */
  function flagged(first = '', loader = FIXED, step = ''): string {
    const path = join(folder, 'train.py');
    const text = `${first}
import argparse, os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
open('starts', 'a').write('start\\n')
parser = argparse.ArgumentParser()
parser.add_argument('--size', type=int)
asked = parser.parse_args()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 8192), nn.Tanh(), nn.Linear(8192, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = TensorDataset(torch.randn(4096, 64), torch.randint(4, (4096,)))
for x, y in DataLoader(data, ${loader}):
    ${step}
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
`;
    writeFileSync(path, text);
    return path;
  }

  async function byFlag(path: string, options: Partial<JobOptions> = {}) {
    const command = [python, path, '--size', '{micro_batch}'];
    const bench = workbench('find-batch', command, { budget: '120MiB', cwd: folder, ...options });
    const report = await findBatch(bench.request, bench.deps);
    await bench.noneLeft();
    return report;
  }

  it('finds what starts find, each size in a life with its own arguments', async () => {
    const forked = await byFlag(flagged());
    expect(forked).toMatchObject({ status: 'found', launches: 1 });
    expect(starts()).toBe(1);
    const sizes = forked.probes.map((probe) => probe.micro_batch);
    expect(new Set(forked.probes.map((probe) => probe.life)).size).toBe(sizes.length);
    const started = await byFlag(flagged(), { fork: false });
    expect(started.launches).toBe(starts() - 1);
    expect(started.launches).toBeGreaterThan(2);
    const [one, other] = [forked, started].map(({ max_micro_batch: max }) => max as number) as [number, number];
    expect(Math.abs(one / other - 1)).toBeLessThan(0.03);
  });

  it('gives each size a fork where one failed at its second', async () => {
    // The first process takes several sizes, no other does.
    const refuse = `
    open('pids', 'a').close()
    pids = open('pids').read().split() or [str(os.getpid())]
    open('pids', 'w').write(' '.join(pids))
    if pids[0] != str(os.getpid()) and len(x) != asked.size:
        raise ValueError('another size')`;
    const report = await byFlag(flagged('', 'batch_size=asked.size', refuse));
    expect(report).toMatchObject({ status: 'found', launches: 1 });
    expect(report.notes.join(' ')).toContain('another size');
    expect(starts()).toBe(1);
  });

  it('starts the command for each size where it has read its arguments before it imports torch', async () => {
    const report = await byFlag(flagged('import sys\nprint(sys.argv[1:])'));
    expect(report.status).toBe('found');
    expect(report.launches).toBe(starts());
    expect(report.launches).toBeGreaterThan(2);
  });
});
