import { afterEach, beforeEach, expect, test } from 'vitest';
import { until } from '../store/home.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const KINDS = [
  'exit 0',
  'exit 3',
  'kill -SEGV $$',
  'seq 20000',
  `exec /usr/bin/python3 -c 'b = [bytearray(1 << 20) for _ in range(100)]'`,
];

/** How many objects live in the daemon when all garbage is collected. */
async function objects(): Promise<number> {
  const before = host.said.length;
  host.daemon?.kill('SIGUSR2');
  await until(() => /objects":\d+/.test(host.said.slice(before)));
  return Number(/objects":(\d+)/.exec(host.said.slice(before))?.[1]);
}

test('a daemon keeps nothing of the jobs that have ended', async () => {
  await host.start({ cpuLanes: 4, httpPort: null, keptJobs: 50, sweepMs: 500 });
  const store = await host.store();
  const round = async (jobs: number) => {
    for (let n = 0; n < jobs; n += 1) await host.submit(['/bin/sh', '-c', KINDS[n % KINDS.length] as string]);
    await until(async () => (await store.jobs.counts()).live === 0, 120);
    await until(async () => (await host.leftOver()).length === 0);
    return objects();
  };
  await round(60); // what is loaded on first use
  const before = await round(60);
  await round(200);
  const after = await round(60);
  expect(after - before).toBeLessThan(2 * 260); // a record that is kept is a hundred objects, and so is what an event listener holds
});
