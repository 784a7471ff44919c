import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JobRecord } from '../../src/contract/job.js';
import { waitForJobs } from '../../src/daemon/index.js';
import { newJobId, openStore } from '../../src/store/index.js';
import { until, useHome } from '../store/home.js';
import { GIB, job, options, recommendation } from '../store/samples.js';
import { observation } from './search.js';
import { Dashboard, type Stream } from './server.js';

useHome();
let dashboard: Dashboard;
const open: Stream[] = [];

beforeAll(async () => {
  dashboard = await Dashboard.start();
});
afterAll(async () => dashboard.close());

const create = async (changes: Partial<JobRecord> = {}): Promise<string> => {
  const record = job(changes);
  await dashboard.store.jobs.create(record);
  return record.job;
};
const follow = async (path: string): Promise<Stream> => {
  const stream = await dashboard.follow(path);
  open.push(stream);
  return stream;
};
type Rows = { job: string; state: string; reason: string | null }[];
const has = (id: string, state: string) => (data: Record<string, unknown>) =>
  (data.rows as Rows).some((row) => row.job === id && row.state === state);

describe('the stream of all jobs', () => {
  it('begins with everything, and then tells only what changed', async () => {
    const [one, two] = [await create({ name: 'one' }), await create({ name: 'two', reason: 'waits for a GPU' })];
    const stream = await follow('/api/stream');
    const first = await stream.until('jobs');
    expect(first.full).toBe(true);
    expect((first.rows as Rows).map((row) => row.job)).toEqual(expect.arrayContaining([one, two]));
    expect((first.rows as Rows).find((row) => row.job === two)?.reason).toBe('waits for a GPU');
    await dashboard.store.jobs.hold(one);
    const change = await stream.until('jobs', has(one, 'held'));
    expect(change.full).toBe(false);
    expect((change.rows as Rows).map((row) => row.job)).toEqual([one]);
    const three = await create({ name: 'three' });
    await stream.until('jobs', has(three, 'queued'));
    // Reasons change without an event
    await dashboard.store.jobs.patch(two, { reason: 'waits for 8 GPUs' });
    await stream.until('jobs', (data) => (data.rows as Rows).some((row) => row.reason === 'waits for 8 GPUs'));
    stream.close();
  });

  it('says of a job that waits what `status` and `wait` say: here that Redis takes no writes', async () => {
    const id = await create({ name: 'waits', reason: 'waits for a GPU' });
    const { store } = dashboard;
    const stream = await follow('/api/stream');
    const full = 'Redis takes no writes: it is full (maxmemory). Raise its maxmemory, or use another Redis';
    await store.connection.redis.config('SET', 'maxmemory', '1');
    try {
      await stream.until('jobs', (data) => (data.rows as Rows).some((row) => row.job === id && row.reason === full));
      expect((await dashboard.ask(`/api/jobs/${id}`)).json.reason).toBe(full);
      const stop = new AbortController();
      const reasons: (string | null)[] = [];
      const onReason = ({ reason }: JobRecord): void => {
        reasons.push(reason);
        stop.abort();
      };
      const own = await openStore({ onOutage: () => {} });
      await waitForJobs(own, [id], stop.signal, () => {}, onReason).catch(() => {});
      await own.close();
      expect(reasons).toEqual([full]);
    } finally {
      await store.connection.redis.config('SET', 'maxmemory', '0');
    }
    await stream.until('jobs', (data) =>
      (data.rows as Rows).some((row) => row.job === id && row.reason === 'waits for a GPU'),
    );
    stream.close();
  });

  it('shows a thousand jobs, and none of their commands and journals', async () => {
    const ids = Array.from({ length: 1000 }, () => newJobId());
    await Promise.all(ids.map((id) => create({ job: id, command: ['python', 'secret-looking.py'] })));
    const stream = await follow('/api/stream');
    const told = new Set<string>();
    await stream.until('jobs', ({ rows }) => {
      for (const row of rows as Rows) told.add(row.job);
      return ids.every((id) => told.has(id));
    });
    expect(JSON.stringify(stream.events)).not.toContain('secret-looking');
    await dashboard.store.jobs.cancel(ids[500] as string);
    const change = await stream.until('jobs', has(ids[500] as string, 'cancelled'));
    expect((change.rows as Rows).length).toBe(1);
    stream.close();
  });

  it('says who holds a device', async () => {
    const devices = (await (await import('../../src/runtime/index.js')).createRuntime().devices()).slice(0, 1);
    const lease = await dashboard.store.leasing.acquire({
      ...{ owner: 'j-holder1', devices, count: 1, bytes: GIB, share: true, onWait: () => {} },
      signal: new AbortController().signal,
    });
    const stream = await follow('/api/stream');
    const told = await stream.until('machine', (data) => JSON.stringify(data.devices).includes('j-holder1'));
    const [device] = (told.devices as Record<string, unknown>[]).filter((one) => one.uuid === devices[0]?.uuid);
    expect(device).toMatchObject({
      total_bytes: devices[0]?.total_bytes,
      reserved_bytes: GIB,
      holders: [{ job: 'j-holder1', bytes: GIB, share: true }],
    });
    expect(device?.used_bytes).toBeGreaterThan(0);
    await lease.release();
    await stream.until('machine', (data) => !JSON.stringify(data.devices).includes('j-holder1'));
    stream.close();
  });

  it('lets go of a record that cannot be read', async () => {
    const id = await create();
    await dashboard.store.connection.redis.hset(dashboard.store.keys.job(id), 'name', '{');
    const stream = await follow('/api/stream');
    const { rows } = await stream.until('jobs');
    expect((rows as Rows).map((row) => row.job)).not.toContain(id);
    stream.close();
  });
});

describe('the stream of one job', () => {
  it('tells its ladder as it grows, with why each size was tried', async () => {
    const found = recommendation({ key: 'tiny:cpu:200m:1x', budget_bytes: 200 << 20 });
    const id = await create({ state: 'searching', key: found.key });
    const stream = await follow(`/api/stream?job=${id}`);
    await stream.until('job', (data) => (data.steps as unknown[]).length === 0);
    const journal = [observation(1, 30 << 20), observation(2, 32 << 20)];
    await dashboard.store.events.add({
      ...{ type: 'probe', job: id },
      probe: {
        ...found.probes[0],
        micro_batch: 1,
        amp: 'off',
        why: 'the smallest tells whether anything fits',
      } as never,
    });
    await dashboard.store.jobs.patch(id, { journal });
    const page = await stream.until('job', (data) => (data.steps as unknown[]).length === 2);
    expect(page.steps).toMatchObject([
      { n: 1, micro_batch: 1, outcome: 'fit', peak_bytes: 30 << 20, why: 'the smallest tells whether anything fits' },
      { n: 2, micro_batch: 2, outcome: 'fit', peak_bytes: 32 << 20, why: null },
    ]);
    expect(page.budget_bytes).toBe(200 << 20);
    expect(page.curves).toMatchObject([
      {
        fits: [
          [1, 30 << 20],
          [2, 32 << 20],
        ],
        line: { base: 28 << 20, slope: 2 << 20 },
      },
    ]);
    await dashboard.store.recommendations.put(found, id);
    await stream.until('job', (data) => data.recommendation !== null);
    stream.close();
  });

  it('tells of a job of Slurm what its run records in its folder, as that grows', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'oomtune-slurm-'));
    const slurm = {
      cluster: 'c',
      uid: 0,
      id: '12',
      task: null,
      script: join(folder, 'script'),
      folder,
      partition: 'gpu',
    };
    const id = await create({ state: 'running', slurm });
    const stream = await follow(`/api/stream?job=${id}`);
    await stream.until('job', (data) => (data.steps as unknown[]).length === 0);
    const journal = [observation(1, 30 << 20), observation(2, 32 << 20)];
    const ran = job({ job: id, journal, budget_bytes: 200 << 20 });
    writeFileSync(join(folder, 'job.json'), JSON.stringify({ process: { pid: 1, start_time: 1 }, job: ran }));
    const page = await stream.until('job', (data) => (data.steps as unknown[]).length === 2);
    stream.close();
    rmSync(folder, { recursive: true });
    expect(page).toMatchObject({
      state: 'running',
      budget_bytes: 200 << 20,
      curves: [
        {
          fits: [
            [1, 30 << 20],
            [2, 32 << 20],
          ],
        },
      ],
    });
  });

  it('passes its output on as it is, whatever that is, and whatever it is cut into', async () => {
    const id = await create({ state: 'running' });
    const hostile = '<script>alert(1)</script>\u001b[31mred\n\ndata: {"up":false}\n\nevent: redis\n€€€ \u202e';
    const bytes = Buffer.concat([Buffer.from(hostile), Buffer.from([0xff, 0xfe, 0x0a])]);
    const stream = await follow(`/api/stream?job=${id}`);
    await stream.until('job');
    const cut = Buffer.from(hostile).indexOf('€') + 1;
    await dashboard.store.logs.append(id, 1, 0, bytes.subarray(0, cut));
    await dashboard.store.logs.append(id, 1, cut, bytes.subarray(cut));
    const text = (): string =>
      stream.events
        .filter(({ name }) => name === 'log')
        .map(({ data }) => data.text as string)
        .join('');
    await until(() => text().endsWith('\n') && text().includes('€€€'));
    expect(text()).toBe(`${hostile}\ufffd\ufffd\n`);
    expect(stream.events.filter(({ name }) => name === 'redis').every(({ data }) => data.up === true)).toBe(true);
    await dashboard.store.logs.append(id, 1, bytes.length + 7, Buffer.from('later'));
    await stream.until('log', (data) => data.skipped === 7 && data.text === 'later');
    stream.close();
  });

  it('says that there is no such job', async () => {
    const stream = await follow('/api/stream?job=j-nosuchjob');
    await until(() => stream.events.some(({ name, data }) => name === 'job' && data === null));
    stream.close();
  });
});

describe('steering', () => {
  it('holds, releases, cancels and runs again, and says what cannot be done', async () => {
    const id = await create({ options: options({ priority: 7 }) });
    const act = async (action: string) => dashboard.ask(`/api/jobs/${id}/${action}`, { method: 'POST' });
    const actions = async () => (await dashboard.ask(`/api/jobs/${id}`)).json.actions;
    expect(await actions()).toEqual(['cancel', 'hold', 'edit']);
    expect((await act('hold')).json).toMatchObject({ job: id, state: 'held' });
    expect(await actions()).toEqual(['cancel', 'release', 'edit']);
    expect((await act('release')).json).toMatchObject({ state: 'queued' });
    const refused = await act('retry');
    expect([refused.status, refused.json.error?.code]).toEqual([409, 'OOMTUNE_USAGE']);
    expect((await act('cancel')).json).toMatchObject({ state: 'cancelled' });
    expect(await actions()).toEqual(['retry']);
    expect((await act('hold')).status).toBe(409);
    expect((await act('retry')).json).toMatchObject({ state: 'queued' });
    const missing = await dashboard.ask('/api/jobs/j-nosuchjob/cancel', { method: 'POST' });
    expect([missing.status, missing.json.error?.code]).toEqual([404, 'OOMTUNE_NO_SUCH_JOB']);
  });
});

it('ends all streams when it is closed, and leaves no connection to Redis behind', async () => {
  for (const stream of open) stream.close();
  const { redis } = dashboard.store.connection;
  const second = await Dashboard.start();
  const connections = async (): Promise<number> =>
    String(await redis.client('LIST'))
      .trim()
      .split('\n').length;
  const id = await create({ state: 'running' });
  const streams = [await second.follow('/api/stream'), await second.follow(`/api/stream?job=${id}`)];
  for (const stream of streams) await stream.until('hello');
  await second.close();
  await until(() => streams.every((stream) => stream.ended));
  // Ours: one that asks, one that follows events
  await until(async () => (await connections()) === 2);
});
