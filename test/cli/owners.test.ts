import { writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
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

it('is not told in a log beside the message that a record cannot be read', async () => {
  const torn = job({ name: 'torn' });
  await store.jobs.create(torn);
  await store.connection.redis.hset(store.keys.job(torn.job), 'priority', 'no JSON');
  for (const verb of ['status', 'explain', 'cancel']) {
    const { stdout, stderr } = await oomtune.call(verb === 'status' ? [verb] : [verb, torn.job]);
    expect(stdout + stderr).toContain('cannot be read');
    expect(stderr).not.toContain('"level"');
  }
  await store.connection.redis.zrem(store.keys.live, torn.job);
  await store.connection.redis.zrem(store.keys.jobs, torn.job);
  await store.connection.redis.del(store.keys.job(torn.job));
});

it('is a column of the tables once there are several', async () => {
  await store.jobs.create(job({ name: 'theirs', owner: 'bob' }));
  expect(await owners()).toContainEqual(['theirs', 'bob']);
  expect((await oomtune.call(['status'])).stdout).toMatch(/NAME +OWNER +STATE.*theirs +bob +queued/s);
});

it('chooses the jobs that are shown, and has a table of what each user has', async () => {
  const { jobs } = (await oomtune.json(['status', '--user', 'bob'])) as { jobs: { name: string }[] };
  expect(jobs.map(({ name }) => name)).toEqual(['theirs']);
  const lease = await store.leasing.acquire({
    ...{ owner: 'j-hers', user: 'carol', count: 1, bytes: null, share: false, devices: [gpu(0)] },
    signal: new AbortController().signal,
    onWait: () => {},
  });
  const { users } = (await oomtune.json(['status', '--users'])) as { users: { user: string }[] };
  const plain = { gpus_limit: null, waiting_limit: null };
  expect(users.find(({ user }) => user === 'carol')).toEqual({
    ...{ user: 'carol', device_seconds: expect.closeTo(60, 0), share: 1, gpus: 1, working: 0, waiting: 0, ...plain },
  });
  expect(users.find(({ user }) => user === 'bob')).toMatchObject({ device_seconds: 0, gpus: 0, waiting: 1 });
  expect(users.at(-1)?.user).toBe('carol'); // who has used most comes last
  await lease.release();
  const file = join(oomtune.home, 'share.yaml');
  const env = { OOMTUNE_FAIR_SHARE: file };
  writeFileSync(file, 'half_life: 2d\nlimits: {queued: 7}\nusers: {bob: {gpus: 3}}\n');
  expect((await oomtune.call(['status', '--users'], { env })).stdout).toMatch(/bob +0\.00 h +0 % +0 of 3 +0 +1 of 7\n/);
  writeFileSync(file, 'half_life: soon\n');
  const wrong = await oomtune.call(['status', '--users'], { env });
  expect([wrong.code, wrong.stderr]).toEqual([
    2,
    expect.stringContaining('half_life: it should be a time such as 24h'),
  ]);
  expect((await oomtune.call(['status', '--users', '@'])).code).toBe(2);
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
