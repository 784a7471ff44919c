import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { JobOptions } from '../../src/contract/options.js';
import { cancelJob, pauseJob } from '../../src/daemon/index.js';
import { failure, until } from '../store/home.js';
import { pythonWithTorch } from '../worker/harness.js';
import { Host } from './host.js';

/** What a job leaves for its search, and the daemon's verbs meanwhile: states and processes. */

const python = pythonWithTorch();
let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

/** 64 samples of it take some 35 MiB, 16 some 15 MiB; only from its second batch on, before which it waits for the file `go`. */
const SCRIPT = `
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
open('starts', 'a').write('start\\n')
def runs(): return os.environ['OOMTUNE_HOOK'] == 'apply'  # a life of the spare is told so after its fork
data = TensorDataset(torch.randn(512, 64), torch.randint(4, (512,)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 2048), nn.Linear(2048, 4)
        self.wide = 0 if runs() else 65536
    def forward(self, x):
        h = torch.tanh(self.a(x))
        kept = torch.ones(len(x), self.wide + 1) * h[:, :1]
        return self.b(h) + kept.tanh().mean(1, keepdim=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if not runs(): open('searched', 'a').write('step\\n')
        if runs() and not model.wide:
            open('waits', 'a').write('%d\\n' % os.getpid())
            while not os.path.exists('go'): time.sleep(0.02)
            model.wide = 65536
        while not runs() and os.path.exists('slow') and not os.path.exists('fast'): time.sleep(0.02)
print('trained', flush=True)
`;
const FITS = '200MiB';
const MISFITS = '26MiB';
const NAME = 'oomtune-spare';

function submit(budget: string, changes: Partial<JobOptions> = {}): Promise<string> {
  writeFileSync(join(host.work, 'train.py'), SCRIPT);
  const wanted = { budget, preset: 'auto', tune: true, retries: 3, ...changes };
  return host.submit([python, 'train.py'], wanted, { ...process.env, OMP_NUM_THREADS: '1' });
}

/** Empty for a process that has just ended. */
function read(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1');
  } catch {
    return '';
  }
}

const go = (file = 'go'): void => writeFileSync(join(host.work, file), '');
const named = (name: string): number[] => host.processes().filter((pid) => read(pid, 'comm').trim() === name);
const isStopped = (pid: number): boolean => read(pid, 'stat').split(') ').at(-1)?.[0] === 'T';

/** Waits until so many jobs have made a step and left a spare each. */
async function waits(jobs = 1): Promise<void> {
  await until(() => host.lines('waits').length === jobs && named(NAME).length === jobs, 120);
}

test('a job is paused and resumed with its spare, which is ended once the job has shown that it fits', async () => {
  await host.start();
  const id = await submit(FITS);
  await waits();
  const [spare] = named(NAME) as [number];
  const store = await host.store();
  expect(await pauseJob(store, id, 'on')).toBe('paused');
  expect(isStopped(spare)).toBe(true);
  expect(await pauseJob(store, id, 'off')).toBe('goes on');
  expect(isStopped(spare)).toBe(false);
  go();
  const job = await host.state(id, 'succeeded', 120);
  expect(job.launches.map(({ purpose }) => purpose)).toEqual(['run']);
  expect(host.lines('starts')).toHaveLength(1);
  expect(await host.leftOver()).toEqual([]);
});

test('a paused job is cancelled with its spare', async () => {
  await host.start();
  const id = await submit(FITS);
  await waits();
  const store = await host.store();
  expect(await pauseJob(store, id, 'on')).toBe('paused');
  await cancelJob(store, id);
  await host.state(id, 'cancelled', 60);
  expect(await host.leftOver()).toEqual([]);
});

test('the spare of a job that stood still when its daemon was killed is gone once the job goes on', async () => {
  await host.start();
  const id = await submit(FITS);
  await waits();
  const store = await host.store();
  expect(await pauseJob(store, id, 'on')).toBe('paused');
  await host.kill();
  expect(named(NAME)).toHaveLength(1);
  await host.start();
  await host.state(id, 'running', 60);
  expect(await pauseJob(store, id, 'off')).toBe('goes on');
  await until(() => named(NAME).length === 0, 60);
  go();
  await host.state(id, 'succeeded', 120);
  expect(host.lines('starts')).toHaveLength(1);
  expect(await host.leftOver()).toEqual([]);
});

test('a search in forks of the job cannot be paused, and is cancelled with them', async () => {
  await host.start();
  go();
  go('slow');
  const id = await submit(MISFITS);
  await host.state(id, 'searching', 120);
  await until(() => host.lines('searched').length > 0, 60);
  const store = await host.store();
  expect((await host.job(id)).launches.map(({ purpose }) => purpose)).toEqual(['run']);
  expect(await failure(pauseJob(store, id, 'on'))).toMatchObject({ code: 'OOMTUNE_USAGE' });
  expect(host.processes().some(isStopped)).toBe(false);
  await cancelJob(store, id);
  await host.state(id, 'cancelled', 60);
  expect(host.lines('starts')).toHaveLength(1);
  expect(await host.leftOver()).toEqual([]);
});

test('a spare that a pause has stopped just as its job ran out of memory goes on for the search', async () => {
  await host.start();
  const id = await submit(MISFITS);
  await waits();
  const [spare] = named(NAME) as [number];
  const store = await host.store();
  expect(await pauseJob(store, id, 'on')).toBe('paused');
  // The pause came as the job's own process ended: that one is let go on, however often it is stopped, and the spare is not.
  go();
  const own = Number(host.lines('waits')[0]);
  await until(() => {
    if (isStopped(own)) process.kill(own, 'SIGCONT');
    return !isStopped(spare);
  }, 120);
  // What follows the search stands still, as its user asked for.
  await until(async () => (await host.job(id)).launches.length === 2, 120);
  await until(async () => (await host.job(id)).reason?.startsWith('paused') ?? false, 60);
  expect(await pauseJob(store, id, 'off')).toBe('goes on');
  const job = await host.state(id, 'succeeded', 120);
  expect(job.launches.map(({ purpose }) => purpose)).toEqual(['run', 'run']);
  expect(await host.leftOver()).toEqual([]);
}, 300_000);

test('jobs that misfit at the same time are each searched for in forks of their own', async () => {
  await host.start();
  const ids = [await submit(MISFITS, { name: 'one' }), await submit(MISFITS, { name: 'two' })];
  await waits(2);
  go();
  for (const id of ids) {
    const job = await host.state(id, 'succeeded', 240);
    expect(job.launches.map(({ purpose }) => purpose)).toEqual(['run', 'run']);
    expect(job.config).toMatchObject({ effective_batch: 64 });
  }
  expect(host.lines('starts')).toHaveLength(4);
  expect(await host.leftOver()).toEqual([]);
}, 300_000);
