import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { JobOptions } from '../../src/contract/options.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { findBatch } from '../../src/worker/search/find-batch.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const folder = mkdtempSync(join(tmpdir(), 'oomtune-state-'));
const MIB = 1024 ** 2;

// Weights, gradients and two moments take 17 MiB each; a file stands in for the host beside the device.
const bench = (purpose: 'find-batch' | 'run', file: string, options: Partial<JobOptions> = {}) => {
  const { request, ...rest } = workbench(purpose, [python, 'moments.py', join(folder, file)], {
    ...{ budget: '62MiB', minBatch: 8, maxBatch: 8, exact: true, env: ['PYTHONPATH'] },
    ...options,
  });
  const environment = { ...request.environment, PYTHONPATH: join(FIXTURES, 'state') };
  return { request: { ...request, environment }, ...rest };
};

it('finds that training fits with its state on the host where nothing else makes it fit, with no number changed', async () => {
  const { request, deps } = bench('find-batch', 'searched.pt');
  const report = await findBatch(request, deps);
  expect(report.config, JSON.stringify(report)).toMatchObject({
    ...{ micro_batch: 8, amp: 'off', checkpointing: false, optimizer_on_host: true },
  });
  expect(report.probes.some((probe) => probe.outcome === 'device_oom' && !probe.optimizer_on_host)).toBe(true);
  expect(report.probes.every((probe) => !probe.optimizer_on_host || probe.outcome === 'fit')).toBe(true);
});

it('runs a job so to the weights and the state of a plain run, and a plain run goes on from it', async () => {
  const { request, deps } = bench('run', 'moved.pt');
  const { PYTHONPATH, ...env } = request.environment; // as many threads: sums are made in another order with another number
  const plain = (file: string): string =>
    execFileSync(python, ['moments.py', join(folder, file)], { cwd: FIXTURES, encoding: 'utf8', env });
  plain('plain.pt');
  const report = await runJob(request, deps);
  expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, config: { optimizer_on_host: true } });
  expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(62 * MIB);
  const equal = `
import sys, torch
def same(a, b):
    if isinstance(a, torch.Tensor): return torch.equal(a, b)
    if isinstance(a, dict): return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list) else a == b
print(same(*map(torch.load, sys.argv[1:])))`;
  const files = ['plain.pt', 'moved.pt'].map((file) => join(folder, file));
  expect(execFileSync(python, ['-c', equal, ...files], { encoding: 'utf8' })).toBe('True\n');
  expect(plain('moved.pt')).toContain('steps 16');
});

it('says why the state has to stay on the device, where nothing fits', async () => {
  const { request, deps } = workbench('find-batch', [python, 'deep.py'], {
    ...{ budget: '40MiB', minBatch: 4096, maxBatch: 4096, exact: true, env: ['PYTHONPATH'] },
  });
  const environment = { ...request.environment, PYTHONPATH: join(FIXTURES, 'state') };
  const report = await findBatch({ ...request, environment }, deps);
  expect(report.status).toBe('exhausted');
  expect(report.notes.join(' ')).toContain("The optimizer's state cannot wait in host memory: no optimizer is one of");
});
