import { userInfo } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { gpu, job } from '../store/samples.js';
import { submitted } from './contract.js';
import { Oomtune } from './oomtune.js';

/** Other people's jobs are written into the store as a daemon for several users would. */
const oomtune = new Oomtune();
const me = userInfo().username;
let store: Store;
let mine: string;

beforeAll(async () => {
  const sent = await oomtune.json(['submit', '--device', 'cpu', '--preset', 'none', '--name', 'mine', '--', 'true']);
  mine = submitted.parse(sent).job;
  process.env.OOMTUNE_HOME = oomtune.home;
  store = await openStore({});
});
afterAll(async () => {
  await store.close();
  await oomtune.close();
});

const owners = async (): Promise<unknown[]> => {
  const { jobs } = (await oomtune.json(['status'])) as { jobs: { name: string; owner: string | null }[] };
  return jobs.map(({ name, owner }) => [name, owner]);
};

it('is the user who submits, and is left out of tables while there is no other', async () => {
  expect(await owners()).toEqual([['mine', me]]);
  expect(await oomtune.json(['explain', mine])).toMatchObject({ owner: me });
  expect((await oomtune.call(['status'])).stdout).not.toContain('OWNER');
  expect((await oomtune.call(['status', mine])).stdout).toMatch(new RegExp(`owner +${me}\n`));
});

it('is unknown of a record from before it was a field, which can be read and steered', async () => {
  const old = job({ name: 'old' });
  await store.jobs.create(old);
  await store.connection.redis.hdel(store.keys.job(old.job), 'owner');
  expect(await oomtune.json(['status', old.job])).toMatchObject({ jobs: [{ owner: null }] });
  expect((await oomtune.call(['hold', old.job])).code).toBe(0);
  expect((await oomtune.call(['cancel', old.job])).code).toBe(0);
});

it('is a column of the tables once there are several', async () => {
  await store.jobs.create(job({ name: 'theirs', owner: 'bob' }));
  expect(await owners()).toContainEqual(['theirs', 'bob']);
  expect((await oomtune.call(['status'])).stdout).toMatch(/NAME +OWNER +STATE.*theirs +bob +queued/s);
});

it('is told of who holds a device', async () => {
  const { devices } = (await oomtune.json(['devices'])) as { devices: { id: string; uuid: string }[] };
  const cpu = devices.find(({ id }) => id === 'cpu');
  const lease = await store.leasing.acquire({
    ...{ owner: 'j-theirs', user: 'bob', count: 1, bytes: 1024 ** 2, share: true },
    devices: [{ ...gpu(0), id: 'cpu', uuid: cpu?.uuid ?? '' }],
    signal: new AbortController().signal,
    onWait: () => {},
  });
  const held = (await oomtune.json(['devices'])) as { devices: { id: string; holders: unknown[] }[] };
  expect(held.devices.find(({ id }) => id === 'cpu')?.holders).toEqual([
    { job: 'j-theirs', owner: 'bob', bytes: 1024 ** 2, share: true },
  ]);
  await lease.release();
});
