import { join } from 'node:path';
import { createClient } from 'redis';
import { afterAll, describe, expect, it } from 'vitest';
import { findBatch } from './contract.js';
import { Oomtune, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const MLP = join(ROOT, 'examples', 'mlp.py');
const MIB = 1024 ** 2;

describe('find-batch', () => {
  it('answers with the document of the contract, and records it where other clients read it', async () => {
    const options = ['--device', 'cpu', '--budget', '120MiB', '--name', 'mlp'];
    const report = findBatch.parse(await oomtune.json(['find-batch', ...options, '--', PYTHON, MLP]));
    expect(report.status).toBe('found');
    expect(report.key).toBe('mlp:cpu:120m:1x');
    expect(report.device.budget_bytes).toBe(120 * MIB);
    const { config, max_micro_batch: max, apply } = report;
    if (config === null || max === null || apply === null) throw new Error('found, but without an answer');
    expect(config.micro_batch * config.accumulation * config.world_size).toBe(config.effective_batch);
    expect(config.micro_batch).toBeLessThanOrEqual(max);
    for (const size of [config.micro_batch, max]) {
      const ran = report.probes.filter((probe) => probe.micro_batch === size && probe.outcome === 'fit');
      expect(ran.map((probe) => probe.steps >= (report.verified_steps ?? 0))).toContain(true);
    }
    expect(report.peak_bytes).toBeLessThanOrEqual(120 * MIB);
    expect(apply.env.OOMTUNE_MICRO_BATCH).toBe(String(config.micro_batch));
    expect(apply.oomtune.slice(0, 2)).toEqual(['oomtune', 'run']);

    const socket = (await oomtune.call(['redis', 'url'])).stdout.trim().replace('unix://', '');
    const client = createClient({ socket: { path: socket, tls: false } });
    await client.connect();
    const hash = await client.hGetAll(`{oomtune}:config:${report.key}`);
    client.destroy();
    expect(hash).toMatchObject({
      schema: '1',
      key: report.key,
      name: 'mlp',
      budget_bytes: String(120 * MIB),
      micro_batch: String(config.micro_batch),
      max_micro_batch: String(max),
      checkpointing: config.checkpointing ? '1' : '0',
      status: 'verified',
    });
    expect(JSON.parse(hash.probes ?? '')).toHaveLength(report.probes.length);
  });

  it('says in plain lines on stderr what it does, and puts the answer alone on stdout', async () => {
    const options = ['--device', 'cpu', '--budget', '60MiB', '--max-batch', '64', '--max-launches', '3'];
    const { code, stdout, stderr } = await oomtune.call(['find-batch', ...options, '--', PYTHON, MLP]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/recommended +micro-batch \d+/);
    expect(stdout).toContain('oomtune run --name');
    expect(stdout).not.toContain('✓');
    expect(stderr).toMatch(/^ {2}✓ micro-batch +\d+ .*fit/m);
    expect(`${stdout}${stderr}`).not.toContain('\u001b');
  });

  it('ends with 3 when nothing fits, and names the line that proves it', async () => {
    const args = ['find-batch', '--device', 'cpu', '--budget', '20MiB', '--amp', 'off', '--checkpointing', 'off'];
    const { code, stderr, stdout } = await oomtune.call([...args, '--', PYTHON, MLP]);
    expect(code).toBe(3);
    expect(stdout).toBe('');
    expect(stderr).toContain('(OOMTUNE_EXHAUSTED)');
    expect(stderr).toMatch(/Evidence: .*memory/);
  });

  it('ends with 4 for a script that fails for another reason, and never tries it smaller', async () => {
    const script = join(ROOT, 'examples', 'shape_error.py');
    const { code, stdout } = await oomtune.call([
      'find-batch',
      '--json',
      '--device',
      'cpu',
      '--budget',
      '300MiB',
      '--',
      PYTHON,
      script,
    ]);
    const report = findBatch.parse(JSON.parse(stdout));
    expect(code).toBe(4);
    expect(report.status).toBe('failed');
    expect(report.failure?.class).toBe('user_error');
    expect(report.failure?.evidence).toMatch(/shape/);
    expect(report.launches).toBe(1);
  });

  it('leaves nothing behind when it is interrupted', async () => {
    const { child, ended, said } = oomtune.start([
      'find-batch',
      '--device',
      'cpu',
      '--budget',
      '300MiB',
      '--',
      PYTHON,
      MLP,
    ]);
    while (!said().includes('launch 1')) await new Promise((resolve) => setTimeout(resolve, 50));
    child.kill('SIGINT');
    const { code, stderr } = await ended;
    expect(code).toBe(130);
    expect(stderr).toContain('(OOMTUNE_INTERRUPTED)');
    expect(oomtune.leftovers()).toEqual([]);
    const { devices } = (await oomtune.json(['devices'])) as { devices: { reserved_bytes: number }[] };
    expect(devices.every((device) => device.reserved_bytes === 0)).toBe(true);
  });
});
