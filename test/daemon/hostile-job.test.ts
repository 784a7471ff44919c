import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cancelJob } from '../../src/daemon/index.js';
import { ROOT, until } from '../store/home.js';
import { pythonWithTorch } from '../worker/harness.js';
import { Host, sleep } from './host.js';

const python = pythonWithTorch();
const SEED = Number(
  process.env.OOMTUNE_TEST_SEED === 'random' ? Date.now() % 1e6 : (process.env.OOMTUNE_TEST_SEED ?? 7),
);
const SECONDS = 20;
/** What the daemon of one job takes, and as much again for what that job does to it. */
const MOST_KIB = 400 * 1024;

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const peakKib = (pid: number): number =>
  Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);

test('a job that tampers with all that is read of it ends as any other, and costs the daemon nothing', async () => {
  console.warn(`seed ${SEED}: OOMTUNE_TEST_SEED=${SEED} draws the same`);
  const daemon = await host.start();
  const script = join(host.work, 'hostile_job.py');
  copyFileSync(join(ROOT, 'test/fixtures/daemon/hostile_job.py'), script);
  const options = { preset: 'auto', tune: true, budget: '2GiB', retries: 0, timeoutSeconds: 120 } as const;
  const finishes = await host.submit([python, script, String(SEED), String(SECONDS)], options);
  const endless = await host.submit([python, script, String(SEED + 1), '600'], options);
  await until(async () => (await host.job(endless)).started_at !== null, 60);
  for (let at = 0; at < 5; at += 1) {
    await host.state(await host.shell('true'), 'succeeded', 60);
    await sleep(1000);
  }
  const end = await host.ended(finishes, 200);
  expect(['succeeded', 'failed']).toContain(end.state);
  const store = await host.store();
  await cancelJob(store, endless);
  await host.state(endless, 'cancelled', 60);
  expect(daemon.exitCode).toBeNull();
  expect(peakKib(daemon.pid as number)).toBeLessThan(MOST_KIB);
  expect(host.said.length).toBeLessThan(256 * 1024);
  expect(await host.leftOver()).toEqual([]);
}, 400_000);
