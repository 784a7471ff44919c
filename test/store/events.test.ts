import { afterAll, beforeAll, expect, test } from 'vitest';
import { newJobId, openStore, type Store } from '../../src/store/index.js';
import { latestEvents, useHome } from './home.js';
import { gpu, job, recommendation } from './samples.js';

useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore();
});
afterAll(() => store.close());

test('every event tells type, job and key, whatever it tells besides', async () => {
  const record = job({ key: 'train:cpu:200m:1x' });
  await store.jobs.create(record);
  await store.recommendations.put(recommendation(), record.job);
  const owner = newJobId();
  const lease = await store.leasing.acquire({
    owner,
    devices: [gpu(0)],
    count: 1,
    bytes: null,
    share: false,
    signal: new AbortController().signal,
    onWait: () => {},
  });
  await lease.release();
  const probe = recommendation().probes[0] as ReturnType<typeof recommendation>['probes'][number];
  await store.events.add({ type: 'probe', job: record.job, key: null, probe });
  const told = (await latestEvents(store, 10)).map(({ type, job: about, key }) => ({ type, job: about, key }));
  expect(told).toEqual([
    { type: 'job', job: record.job, key: 'train:cpu:200m:1x' },
    { type: 'config', job: record.job, key: recommendation().key },
    { type: 'lease', job: owner, key: '' },
    { type: 'lease', job: owner, key: '' },
    { type: 'probe', job: record.job, key: '' },
  ]);
});
