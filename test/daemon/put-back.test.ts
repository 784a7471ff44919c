import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { ClaimedRecord } from '../../src/daemon/claimed-record.js';
import { Execution } from '../../src/daemon/execution.js';
import { OwnHands } from '../../src/daemon/hands.js';
import { JobBackups } from '../../src/daemon/job-backups.js';
import { createRuntime } from '../../src/runtime/index.js';
import { hostName, type StoredJob } from '../../src/store/index.js';
import { runJob } from '../../src/worker/index.js';
import type { WorkDeps, WorkRequest } from '../../src/worker/types.js';
import { until } from '../store/home.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

interface Acts {
  /** Called while the job's lease is being asked for. */
  asks?: (execution: Execution) => void;
  /** Called when the job has ended, and nobody has looked yet. */
  ended?: (execution: Execution) => void;
}

/** The job as this host has taken it, and what works at it. */
async function taken(line: string, { asks = () => {}, ended = () => {} }: Acts) {
  const store = await host.store();
  const id = await host.shell(line);
  const claim = 'claim-of-this-test.1';
  const { record } = await store.jobs.claim({ job: id, epoch: 1 }, hostName(), claim);
  if (record === null) throw new Error('the job was not taken');
  const log = createLog('test', 'silent');
  const exit = join(host.home, 'runs', id, '1', 'exit.json');
  const slow = {
    runJob: (request: WorkRequest, deps: WorkDeps) =>
      runJob(request, {
        ...deps,
        persist: async (patch) => {
          await deps.persist(patch);
          if (patch.state !== 'running') return;
          await until(() => existsSync(exit));
          await sleep(500);
          ended(execution);
        },
      }),
  };
  const execution: Execution = new Execution(record, null, {
    hands: new OwnHands({ store, runtime: createRuntime(), worker: slow, log }, join(host.home, 'runs')),
    ...{ store, host: hostName(), claimed: new JobBackups(store, log) },
    ...{ ended: new JobBackups(store, log, 'ended'), claim, log },
    onWait: () => queueMicrotask(() => asks(execution)), // the request is on its way by then
  });
  return { store, id, execution };
}

for (const [what, act] of Object.entries({
  'put back': (execution: Execution) => void execution.putBack(),
  'let go of': (execution: Execution) => execution.detach(),
})) {
  test(`a job that is ${what} in the moment in which its lease is granted goes back as it came`, async () => {
    const { store, id, execution } = await taken('true', { asks: act });
    expect(await execution.run()).toBe('back');
    expect(await host.job(id)).toMatchObject({ state: 'queued', claimHost: null, launches: [], started_at: null });
    expect(await store.leasing.list()).toEqual([]);
    expect(host.starts(id)).toBe(0);
  });
}

test('a job that ends while the daemon lets go of it ended as it did: it is not cancelled', async () => {
  const { id, execution } = await taken('exit 4', { ended: (one) => one.detach() });
  // Who heard of the end before he let go has recorded it; who had not leaves it to the next daemon
  const end = await execution.run();
  const left = { state: 'running', claimHost: hostName() };
  expect(await host.job(id)).toMatchObject(end === 'left' ? left : { state: 'failed', exit_code: 4 });
});

test('two steps that find at once that Redis has lost the record are both written', async () => {
  const store = await host.store();
  const id = await host.shell('true');
  const claim = 'claim-of-this-test.1';
  const { record } = await store.jobs.claim({ job: id, epoch: 1 }, hostName(), claim);
  const log = createLog('test', 'silent');
  const backups = new JobBackups(store, log);
  const onLost = (error: Error) => expect.unreachable(error.message);
  const letGo = new AbortController().signal;
  const claimed = new ClaimedRecord(record as StoredJob, {
    store,
    claimed: backups,
    ended: backups,
    host: hostName(),
    claim,
    letGo,
    onLost,
  });
  await store.connection.redis.flushall();
  await Promise.all([claimed.patch({ reason: 'here' }), claimed.patch({ devices: ['cpu'] })]);
  expect(await host.job(id)).toMatchObject({ reason: 'here', devices: ['cpu'], claimHost: hostName() });
});
