import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createLog } from '../../src/common/log.js';
import type { Probe } from '../../src/contract/measurement.js';
import { Session } from '../../src/worker/launch/session.js';
import { observeFit } from '../../src/worker/search/observe.js';
import { growthPerStep, type Measurement, stepsToGo } from '../../src/worker/search/worst-rank.js';
import { FIXTURES, workbench } from './harness.js';

const probe: Probe = {
  rung: { amp: 'off', checkpointing: false },
  micro_batch: 4,
  accumulation: 1,
  steps: 3,
  rest_steps: 4,
  fresh: true,
  purpose: 'verify',
  why: '',
};

/** Asks a process whose allocator comes to rest after so many steps for one probe. */
async function ask(ranks: number, restful: number, wanted: Probe) {
  const { deps } = workbench('find-batch', []);
  const dir = mkdtempSync(join(tmpdir(), 'oomtune-launch-'));
  const session = await Session.open(
    deps.runtime,
    {
      jobId: 'rest',
      launch: 1,
      dir,
      argv: ['python3', 'restless.py', String(ranks), String(restful)],
      cwd: FIXTURES,
      env: { PATH: process.env.PATH ?? '' },
      devices: ['cpu'],
      budgetBytes: null,
      timeoutSeconds: 60,
      graceSeconds: 1,
      output: 'log',
      hook: { mode: 'probe', steps: 3 },
    },
    createLog('test', 'silent'),
  );
  await session.ready();
  const measurement = await session.ask(wanted, false);
  await session.close();
  const log = readFileSync(session.run.logFile, 'utf8');
  return { measurement: measurement as Measurement, orders: log.match(/steps \d+/g), varied: /vary True/.test(log) };
}

describe('a probe whose allocator has not come to rest', () => {
  it('waits for none where it was a workspace that was refused, as in every step to come', () => {
    const restless = { quiet_steps: 0, steps: 3, growth_bytes_per_step: null } as unknown as Measurement;
    expect(stepsToGo(probe, restless)).toBe(4);
    expect(stepsToGo(probe, { ...restless, workspaces_refused: true })).toBe(0);
    expect(stepsToGo({ ...probe, rest_within: 5, retry_steps: 0 }, { ...restless, alloc_retries: 1 })).toBe(2);
  });

  it('is ended sooner only where it gives back its cache: what takes ever new memory will come to rest, or be told to grow', () => {
    const restless = {
      quiet_steps: 0,
      steps: 5,
      alloc_retries: 0,
      growth_bytes_per_step: null,
    } as unknown as Measurement;
    expect(stepsToGo({ ...probe, rest_within: 5 }, restless)).toBe(4);
    expect(stepsToGo({ ...probe, rest_within: 5, retry_steps: 0 }, { ...restless, alloc_retries: 2 })).toBe(0);
  });

  it('goes on until it has, and no longer', async () => {
    const { measurement, orders } = await ask(1, 5, probe);
    expect(orders).toEqual(['steps 3', 'steps 4', 'steps 2']);
    expect(measurement).toMatchObject({ steps: 9, quiet_steps: 4 });
    const observation = observeFit(probe, { launch: 1, fresh: true, asked: Date.now() }, measurement, true);
    expect(observation).toMatchObject({ steps: 9, rise_bytes_per_step: null });
    expect(observation.restless).toBeUndefined();
  });

  it('is not let run where nobody asked for rest', async () => {
    const { orders } = await ask(1, 5, { ...probe, rest_steps: 0 });
    expect(orders).toEqual(['steps 3']);
  });

  it('waits for the last of several ranks, all of which make the same steps', async () => {
    const { measurement } = await ask(3, 5, probe);
    expect(measurement).toMatchObject({ steps: 11, quiet_steps: 4 });
  });

  it('is ended after some thirty steps, and tells by how much it still creeps', async () => {
    const { measurement } = await ask(1, 1000, probe);
    expect(measurement.steps).toBe(30);
    const observation = observeFit(probe, { launch: 1, fresh: true, asked: Date.now() }, measurement, true);
    expect(observation).toMatchObject({ rise_bytes_per_step: 3, restless: true });
  });
});

describe('samples of other lengths', () => {
  it.each([
    ['climb', true],
    ['bound', true],
    ['verify', true],
    ['floor', false],
    ['speed', false],
  ] as const)('take part in a probe to %s: %s', async (purpose, varied) => {
    expect(await ask(1, 0, { ...probe, purpose })).toMatchObject({ varied });
  });

  it('does not grow where it gives back its cache: what it takes meanwhile is what is left', () => {
    const creeping = { alloc_retries: 0, quiet_steps: 0, growth_bytes_per_step: null, creep_bytes_per_step: 4096 };
    expect(growthPerStep(probe, creeping as Measurement)).toBe(4096);
    expect(growthPerStep(probe, { ...creeping, alloc_retries: 30 } as Measurement)).toBeNull();
  });
});
