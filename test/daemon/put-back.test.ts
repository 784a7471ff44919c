import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { Execution } from '../../src/daemon/execution.js';
import { HeldJobs } from '../../src/daemon/held-jobs.js';
import { createRuntime } from '../../src/runtime/index.js';
import { hostName } from '../../src/store/index.js';
import * as worker from '../../src/worker/index.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

/** The job as this host has taken it, and what works at it; `act` is called while its lease is being asked for. */
async function taken(act: (execution: Execution) => void) {
  const store = await host.store();
  const id = await host.shell('true');
  const claim = 'claim-of-this-test.1';
  const { record } = await store.jobs.claim({ job: id, epoch: 1 }, hostName(), claim);
  if (record === null) throw new Error('the job was not taken');
  const log = createLog('test', 'silent');
  const execution: Execution = new Execution(record, null, {
    ...{ store, runtime: createRuntime(), worker, host: hostName(), held: new HeldJobs(store, log), claim, log },
    onWait: () => queueMicrotask(() => act(execution)), // the request is on its way by then
  });
  return { store, id, execution };
}

for (const [what, act] of Object.entries({
  'put back': (execution: Execution) => void execution.putBack(),
  'let go of': (execution: Execution) => execution.detach(),
})) {
  test(`a job that is ${what} in the moment in which its lease is granted goes back as it came`, async () => {
    const { store, id, execution } = await taken(act);
    expect(await execution.run()).toBe('back');
    expect(await host.job(id)).toMatchObject({ state: 'queued', claimHost: null, launches: [], started_at: null });
    expect(await store.leases()).toEqual([]);
    expect(host.starts(id)).toBe(0);
  });
}
