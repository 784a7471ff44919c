import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { refusal } from '../../src/common/refusal.js';
import { ENDED_STATES, type JobState } from '../../src/contract/job.js';
import { namedJob, newJobId, openStore, type Store } from '../../src/store/index.js';
import { failure, latestEvents, script, useHome } from './home.js';
import { job } from './samples.js';

useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore();
});
afterAll(() => store.close());
beforeEach(async () => {
  await store.connection.redis.flushall();
});

async function create(changes: Parameters<typeof job>[0] = {}) {
  const record = job(changes);
  await store.jobs.create(record);
  return record;
}

async function claimed(host = 'a', launches = 0) {
  const record = await create();
  const stored = await store.jobs.get(record.job);
  await store.jobs.claim(stored as never, host, `token-${host}`);
  const all = Array.from({ length: launches }, (_, at) => ({
    launch: at + 1,
    dir: `/runs/${at + 1}`,
    purpose: 'run' as const,
    config: null,
  }));
  if (launches > 0) await store.jobs.patch(record.job, { state: 'running', launches: all }, `token-${host}`);
  return record.job;
}

const read = async (id: string) => {
  const record = await store.jobs.get(id);
  if (record === null) throw new Error(`no ${id}`);
  return record;
};

test('ids are short, never all digits, without a colon, and do not repeat', () => {
  const ids = Array.from({ length: 5000 }, newJobId);
  expect(new Set(ids).size).toBe(5000);
  for (const id of ids) expect(id).toMatch(/^j-[a-z][a-z2-9]{7}$/);
});

test('what was created is read back the same, by its id', async () => {
  const record = await create({ name: 'ünïcode ☃', command: ['a', '', '"quoted"', 'x\ny'] });
  expect(await read(record.job)).toMatchObject(record);
  expect((await namedJob(store.jobs, record.job.slice(0, 6))).job).toMatchObject(record);
  expect((await namedJob(store.jobs, 'ünïcode ☃')).job).toMatchObject(record);
  expect(await store.jobs.latest()).toMatchObject(record);
  expect(await store.jobs.get('j-zzzzzzz9')).toBeNull();
  expect(await store.jobs.get('*')).toBeNull();
  expect((await failure(store.jobs.create(record))).message).toContain('already');
});

/** Passes on what a client says to the store's own Redis, and cuts the connection once: when a script was sent, before its answer. */
async function cutOnce(): Promise<{ url: string; close: () => void }> {
  const socket = new URL(store.url).pathname;
  let cut = false;
  const server = createServer((client) => {
    const redis = connect(socket);
    for (const end of [client, redis]) end.on('error', () => {});
    redis.on('close', () => client.destroy());
    client.on('close', () => redis.destroy());
    redis.on('data', (answer) => client.write(answer));
    client.on('data', (asked) => {
      if (!cut && /\$(4|7)\r\neval/i.test(asked.toString('latin1'))) {
        cut = true;
        redis.removeAllListeners('data');
        redis.once('data', () => redis.destroy()); // it is done, and its answer lost
      }
      redis.write(asked);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `redis://127.0.0.1:${port}`, close: () => server.close() };
}

test('a job whose answer is lost with the connection is queued once, and its submission succeeds; so is a retry', async () => {
  const record = job();
  for (const step of ['create', 'retry'] as const) {
    const { url, close } = await cutOnce();
    const told: string[] = [];
    const cut = await openStore({ url, onOutage: (state) => void told.push(state) });
    if (step === 'create') await cut.jobs.create(record);
    else {
      await store.jobs.cancel(record.job);
      expect(await cut.jobs.retry(record.job, null)).toBe('queued');
    }
    expect(told).toContain('lost');
    await cut.close();
    close();
    expect(await read(record.job)).toMatchObject({ state: 'queued', epoch: step === 'create' ? 1 : 2 });
  }
  expect((await failure(store.jobs.create(record))).message).toContain('already');
  expect(await store.jobs.retry(record.job, null)).toBe('waiting');
});

test('a job is queued whole or not at all, where a key is of another type', async () => {
  const { redis } = store.connection;
  const { keys } = store;
  for (const key of [keys.live, keys.pending, keys.events, keys.notify]) {
    await redis.set(key, 'x');
    const record = job();
    expect((await failure(store.jobs.create(record))).message).toContain('WRONGTYPE');
    expect(await redis.exists(keys.job(record.job)), key).toBe(0);
    await redis.del(key);
  }
});

test('who may not publish changes nothing, and is told which rights are missing', async () => {
  const { redis } = store.connection;
  await redis.call('ACL', 'SETUSER', 'dora', 'on', '>pw', '~{oomtune}:*', 'resetchannels', '+@all');
  const dora = await openStore({ url: `${store.url}?username=dora&password=pw` });
  const refused = async (step: Promise<unknown>) => {
    const error = await failure(step);
    expect(refusal(error, '')).toMatchObject({
      code: 'OOMTUNE_REDIS_REFUSED',
      remedy: expect.stringContaining('&{oo'),
    });
  };
  await refused(dora.jobs.create(job()));
  await refused(dora.checkWrites());
  expect(await redis.dbsize()).toBe(0);
  const queued = await read((await create()).job);
  const held = (await create({ state: 'held' })).job;
  const ended = await claimed();
  await store.jobs.patch(ended, { state: 'failed' }, 'token-a');
  const running = await claimed('a', 1);
  const ran = await read(running);
  // (by the kind of each key: DUMP has the fields of a hash in no order)
  const readAs: Record<string, (key: string) => Promise<unknown>> = {
    string: (key) => redis.get(key),
    hash: (key) => redis.hgetall(key),
    set: async (key) => (await redis.smembers(key)).sort(),
    zset: (key) => redis.zrange(key, 0, -1, 'WITHSCORES'),
    list: (key) => redis.lrange(key, 0, -1),
    stream: (key) => redis.xrange(key, '-', '+'),
  };
  const everything = async () => {
    const keys = (await redis.keys('*')).sort();
    return Promise.all(keys.map(async (key) => [key, await readAs[await redis.type(key)]?.(key)]));
  };
  const before = await everything();
  const waiting = queued.job;
  for (const step of [
    () => dora.jobs.hold(waiting),
    () => dora.jobs.cancel(waiting),
    () => dora.jobs.edit(waiting, { priority: 3 }),
    () => dora.jobs.requeue(queued, 'anew'),
    () => dora.jobs.release(held),
    () => dora.jobs.retry(ended, null),
    () => dora.jobs.pause(running, 'on'),
    () => dora.jobs.patch(running, { state: 'succeeded', exit_code: 0 }, 'token-a'),
    () => dora.jobs.forget(ran, 'queued', { reason: 'anew' }),
    () => dora.jobs.forget(ran, 'failed', { reason: null }),
    () => dora.jobs.restoreEnd({ epoch: 2, record: { ...ran, state: 'failed' } }),
  ])
    await refused(step());
  expect(await everything()).toEqual(before);
  await dora.close();
});

test('a beginning that two jobs have names neither', async () => {
  await create({ job: 'j-same2222' });
  await create({ job: 'j-same3333' });
  expect((await failure(namedJob(store.jobs, 'j-same'))).message).toBe(
    'More than one job begins with j-same: j-same2222, j-same3333.',
  );
});

test('a name means the latest job that has it; one whose record cannot be read leaves it to the one before', async () => {
  const earlier = new Date(2026, 0, 1).toISOString();
  const first = await create({ name: 'same', submitted_at: earlier });
  const second = await create({ name: 'same', submitted_at: new Date(2026, 0, 2).toISOString() });
  const other = await create({ name: 'train', submitted_at: earlier, key: 'train-1a2b3c4d:cpu:1g:1x' });
  expect(await namedJob(store.jobs, 'same')).toMatchObject({ job: { job: second.job }, namesakes: 2 });
  await store.connection.redis.hset(store.keys.job(second.job), 'options', 'no JSON');
  expect((await namedJob(store.jobs, 'same')).job.job).toBe(first.job);
  expect((await namedJob(store.jobs, 'train-1a2b3c4d')).job.job).toBe(other.job);
  await create({ name: 'old-0a1b2c3d', submitted_at: earlier });
  expect((await namedJob(store.jobs, 'old')).job.name).toBe('old-0a1b2c3d');
  expect((await failure(namedJob(store.jobs, 'sane'))).message).toBe('There is no job "sane".');
});

test('the list has all that live and the last that ended, in the order submitted', async () => {
  const at = (n: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, n)).toISOString();
  const records = [];
  for (let n = 0; n < 9; n += 1) records.push(await create({ submitted_at: at(n) }));
  const ids = records.map((record) => record.job);
  for (const n of [0, 1, 2, 5]) await store.jobs.patch(ids[n] as string, { state: 'succeeded' });
  expect((await store.jobs.list({ ended: 2 })).map((one) => ids.indexOf(one.job))).toEqual([2, 3, 4, 5, 6, 7, 8]);
  expect((await store.jobs.list({ ended: 0 })).map((one) => ids.indexOf(one.job))).toEqual([3, 4, 6, 7, 8]);
  expect(await store.jobs.prune(6)).toEqual([ids[0], ids[1], ids[2]]);
  expect(await store.jobs.get(ids[0] as string)).toBeNull();
});

test('whatever is done to a job, a state that has ended never changes, except by retry', async () => {
  type Step = (id: string) => Promise<unknown>;
  const patchTo =
    (state: JobState, claim: string): Step =>
    (id) =>
      store.jobs.patch(id, { state }, claim);
  const steps: Record<string, Step> = {
    claimA: async (id) => store.jobs.claim(await read(id), 'a', 'token-a'),
    claimB: async (id) => store.jobs.claim(await read(id), 'b', 'token-b'),
    search: patchTo('searching', 'token-a'),
    run: patchTo('running', 'token-a'),
    succeedA: patchTo('succeeded', 'token-a'),
    failB: patchTo('failed', 'token-b'),
    timeout: patchTo('timeout', ''),
    launch: (id) =>
      store.jobs.patch(id, { launches: [{ launch: 1, dir: '/d', purpose: 'run', config: null }] }, 'token-a'),
    unclaim: (id) => store.jobs.unclaim(id, 'token-a', 'back'),
    cancel: (id) => store.jobs.cancel(id),
    hold: (id) => store.jobs.hold(id),
    release: (id) => store.jobs.release(id),
    requeue: async (id) => store.jobs.requeue(await read(id), 'again'),
    retry: (id) => store.jobs.retry(id),
  };
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(...Object.keys(steps)), { maxLength: 12 }), async (names) => {
      const { job: id } = await create();
      for (const name of names) {
        const before = await read(id);
        await steps[name]?.(id);
        const after = await read(id);
        if (ENDED_STATES.includes(before.state) && name !== 'retry') expect(after).toEqual(before);
        // What stands in an index is what the record says
        const live = (await store.connection.redis.zscore(store.keys.live, id)) !== null;
        expect(live).toBe(!ENDED_STATES.includes(after.state));
        if (ENDED_STATES.includes(after.state)) expect(after).toMatchObject({ claim: null, cancelAsked: null });
        if (ENDED_STATES.includes(after.state)) expect(after.ended_at).not.toBeNull();
        if (before.claim !== null && after.claim !== null && before.launches.length > 0)
          expect(after.claim).toBe(before.claim);
      }
    }),
    { numRuns: 150 },
  );
});

test('of sixteen processes that claim a job at once, one has it', async () => {
  const record = await create();
  const source = `
    const { openStore } = await import(DIST + '/store/index.js');
    const store = await openStore();
    const host = 'host-' + process.pid;
    await store.hosts.beat({ host, instance: host, pid: 1, version: '0', devices: [], started_at: '' });
    const stored = await store.jobs.get('${record.job}');
    await store.connection.redis.incr('ready');
    while ((await store.connection.redis.get('ready')) !== '16');
    say((await store.jobs.claim(await store.jobs.get('${record.job}'), host, host)).outcome);
    await store.close();`;
  const replies = await Promise.all(Array.from({ length: 16 }, () => script(source).next()));
  expect(replies.sort()).toEqual([...Array(15).fill('away'), 'claimed']);
});

test('only the claim that holds may move a job on', async () => {
  const id = await claimed('a');
  expect(await store.jobs.patch(id, { state: 'running' }, 'token-b')).toBe('lost');
  expect(await store.jobs.patch(id, { state: 'running' }, 'token-a')).toBe('ok');
  expect((await read(id)).state).toBe('running');
  expect(await store.jobs.patch('j-zzzzzzz9', { state: 'running' })).toBe('missing');
});

test('what a vanished host had not launched goes to another; what it had launched stays its own', async () => {
  const fresh = await claimed('gone');
  const launched = await claimed('gone', 1);
  expect((await store.jobs.claim(await read(fresh), 'b', 'token-b')).outcome).toBe('claimed');
  expect(await store.jobs.patch(fresh, { reason: 'still here' }, 'token-gone')).toBe('lost');
  expect((await store.jobs.claim(await read(launched), 'b', 'token-b')).outcome).toBe('away');
  expect(await store.jobs.requeue(await read(launched), 'x')).toBe(false);
  expect((await store.jobs.claim(await read(launched), 'gone', 'token-gone')).outcome).toBe('ours');
});

test('a host that lives keeps even what it has not launched', async () => {
  const id = await claimed('a');
  await store.hosts.beat({ host: 'a', instance: 'i', pid: 1, version: '0', devices: [], started_at: '' });
  expect((await store.jobs.claim(await read(id), 'b', 'token-b')).outcome).toBe('away');
  expect(await store.jobs.requeue(await read(id), 'x')).toBe(false);
});

test('cancel is final at once for what nobody has begun, and a durable request for what runs', async () => {
  const { job: waiting } = await create();
  expect(await store.jobs.cancel(waiting)).toBe('cancelled');
  const running = await claimed('a', 1);
  expect(await store.jobs.cancel(running)).toBe('running');
  expect((await read(running)).cancelAsked).not.toBeNull();
  const standing = await store.jobs.standing([running, waiting]);
  expect(standing.map((reply) => reply.is === 'value' && reply.value.cancelAsked)).toEqual([true, true]);
  expect(await store.jobs.cancel(waiting)).toBe('cancelled');
  expect(await store.jobs.cancel('j-zzzzzzz9')).toBe('missing');
});

test('a job that was cancelled while it was put back does not go back', async () => {
  const id = await claimed('a');
  await store.hosts.beat({ host: 'a', instance: 'i', pid: 1, version: '0', devices: [], started_at: '' });
  await store.jobs.cancel(id);
  expect(await store.jobs.unclaim(id, 'token-a', 'back')).toBe(false);
  expect((await read(id)).state).toBe('cancelled');
});

test('a job that was launched is not put back, whoever asks for it', async () => {
  const id = await claimed('a', 1);
  expect(await store.jobs.unclaim(id, 'token-a', 'back')).toBe(false);
  expect(await read(id)).toMatchObject({ claimHost: 'a', claim: 'token-a' });
});

test('a job that was changed while it was being put into its queue is still to be put there', async () => {
  const record = job();
  await store.jobs.create(record);
  const before = await read(record.job);
  expect(await store.jobs.edit(record.job, { priority: 3 })).toBe('ok');
  expect(await store.jobs.unpend(before, 'waits in its queue')).toBe(false);
  expect(await store.jobs.isPending([record.job])).toEqual([true]);
  const changed = await read(record.job);
  expect(changed.options.priority).toBe(3);
  expect(await store.jobs.unpend(changed, 'waits in its queue')).toBe(true);
  expect(await store.jobs.isPending([record.job])).toEqual([false]);
});

test('a held job cannot be started by who had claimed it a moment before', async () => {
  const id = await claimed('a');
  expect(await store.jobs.hold(id)).toBe('held');
  expect(await store.jobs.patch(id, { state: 'searching' }, 'token-a')).toBe('lost');
  expect((await store.jobs.claim(await read(id), 'a', 'token-a')).outcome).toBe('held');
  const stale = await read(id);
  expect(await store.jobs.release(id)).toBe('queued');
  expect((await store.jobs.claim(stale, 'a', 'token-a')).outcome).toBe('stale'); // a queue entry of before
  expect((await store.jobs.claim(await read(id), 'a', 'token-a')).outcome).toBe('claimed');
  expect(await store.jobs.hold(await claimed('a', 1))).toBe('running');
});

test('a retry starts anew under the same id', async () => {
  const id = await claimed('a', 2);
  await store.jobs.patch(id, { state: 'failed', exit_code: 1 }, 'token-a');
  expect(await store.jobs.retry(id)).toBe('queued');
  expect(await read(id)).toMatchObject({
    state: 'queued',
    epoch: 2,
    launches: [],
    exit_code: null,
    ended_at: null,
    claim: null,
  });
  expect((await store.jobs.pending()).map((one) => one.job)).toEqual([id]);
  expect(await store.jobs.retry(id)).toBe('waiting');
});

test('records that cannot be used are left where they are, and the others still read', async () => {
  const { redis } = store.connection;
  const good = await create();
  const changes: [string, string][] = [
    ['command', '"rm -rf /"'],
    ['command', '["a\\u0000b"]'],
    ['command', '[]'],
    ['options', '{}'],
    ['options', JSON.stringify({ ...good.options, env: ['LD_PRELOAD=/evil.so'] })],
    ['options', JSON.stringify({ ...good.options, cwd: '../..' })],
    ['state', 'flying'],
    ['job', '"j-another2"'],
    ['launches', '[{"launch":1,"dir":"relative","purpose":"run","config":null}]'],
    ['journal', '{{{'],
    ['priority', 'x'],
    ['schema', '2'],
  ];
  for (const [field, value] of changes) {
    const { job: id } = await create();
    const was = await redis.hgetall(store.keys.job(id));
    await redis.hset(store.keys.job(id), field, value);
    const error = await failure(store.jobs.get(id));
    expect(error.code, `${field}=${value}`).toBe('OOMTUNE_RECORD_UNREADABLE');
    const claimed = await store.jobs.claim({ job: id, epoch: Number(was.epoch) }, 'a', 'token-a');
    expect(claimed, field).toEqual({ outcome: 'unreadable', record: null });
    // Nothing was taken from it: well again, it is a job as before
    await redis.hset(store.keys.job(id), field, was[field] ?? '""');
    if (was[field] === undefined) await redis.hdel(store.keys.job(id), field);
    expect(await read(id)).toMatchObject({ job: id, state: 'queued', claim: null });
    await redis.hset(store.keys.job(id), field, value);
  }
  const { job: other } = await create();
  await redis.del(store.keys.job(other));
  await redis.set(store.keys.job(other), 'no hash at all');
  expect((await store.jobs.list()).map((one) => one.job)).toEqual([good.job]);
  expect((await store.jobs.pending()).map((one) => one.job)).toEqual([good.job]);
  expect(await redis.llen(store.keys.refused)).toBeGreaterThan(5);
  const unreadable = await store.jobs.unreadable();
  expect(unreadable.map((one) => one.job).sort()).toEqual(
    (await redis.zrange(store.keys.live, 0, -1)).filter((id) => id !== good.job).sort(),
  );
  expect(unreadable.filter(({ newer }) => newer).map(({ why }) => why)).toEqual([
    'written by a newer oomtune (schema 2)',
  ]);
});

test('an ended job whose record cannot be read is told of, and not merely left out', async () => {
  const ended = await claimed();
  await store.jobs.patch(ended, { state: 'succeeded' }, 'token-a');
  await store.connection.redis.hset(store.keys.job(ended), 'schema', 99);
  expect(await store.jobs.list()).toEqual([]);
  expect(await store.jobs.unreadable()).toEqual([
    { job: ended, why: 'written by a newer oomtune (schema 99)', newer: true },
  ]);
});

test('an index that names a job without a record is put right', async () => {
  const { redis } = store.connection;
  const { job: id } = await create();
  await redis.del(store.keys.job(id));
  expect(await store.jobs.live()).toEqual([]);
  expect(await store.jobs.pending()).toEqual([]);
  expect([await redis.zcard(store.keys.live), await redis.scard(store.keys.pending)]).toEqual([0, 0]);
});

const held = async (id: string, host = 'a') => {
  const record = await read(id);
  return { host, claim: `token-${host}`, epoch: record.epoch, record };
};

test('what a host holds is written back where it is gone, stands as before, or something else took its place', async () => {
  const { redis } = store.connection;
  const id = await claimed('a', 1);
  const before = await held(id);
  await store.jobs.patch(
    id,
    { launches: [...before.record.launches, { launch: 2, dir: '/runs/2', purpose: 'run', config: null }] },
    'token-a',
  );
  const mine = await held(id);
  expect(await store.jobs.restore(mine)).toBe('kept');
  expect(await store.jobs.restore(before)).toBe('kept'); // an older copy takes nothing back
  expect((await read(id)).launches).toHaveLength(2);
  for (const lose of [
    () => redis.flushall(),
    () => redis.del(store.keys.job(id)),
    () => redis.hset(store.keys.job(id), 'launches', JSON.stringify(before.record.launches)),
    () => redis.set(store.keys.job(id), 'something else'),
    () => redis.hdel(store.keys.job(id), 'claim', 'claim_host'),
  ]) {
    await lose();
    expect(await store.jobs.restore(mine), lose.toString()).toBe('restored');
    expect(await read(id)).toMatchObject({
      state: 'running',
      claim: 'token-a',
      claimHost: 'a',
      launches: mine.record.launches,
    });
    expect((await store.jobs.live()).map((one) => one.job)).toEqual([id]);
    expect(await store.jobs.patch(id, { reason: 'goes on' }, 'token-a')).toBe('ok');
  }
  const kept = await redis.keys(`${store.keys.prefix}:aside:${id}:*`);
  expect(await redis.get(kept[0] as string)).toBe('something else');
});

test("what is another host's by now is not written back", async () => {
  const id = await claimed('a', 1);
  const mine = await held(id);
  await store.jobs.patch(id, { state: 'failed' }, 'token-a');
  expect(await store.jobs.restore(mine)).toBe('ended');
  await store.jobs.retry(id);
  expect(await store.jobs.restore(mine)).toBe('fenced');
  expect(await read(id)).toMatchObject({ state: 'queued', epoch: 2, claim: null });
  const other = await claimed('b', 1);
  expect(await store.jobs.restore({ ...(await held(other)), host: 'a', claim: 'token-a' })).toBe('lost');
  const fresh = await claimed('b');
  expect(await store.jobs.restore({ ...(await held(fresh)), host: 'a', claim: 'token-a' })).toBe('lost');
});

test('every change of state is an event, with its reason', async () => {
  const id = await claimed('a');
  await store.jobs.patch(id, { state: 'running', reason: null }, 'token-a');
  await store.jobs.patch(id, { state: 'failed', reason: 'it broke' }, 'token-a');
  const events = (await latestEvents(store, 10)).map(({ job, state, reason }) => ({ job, state, reason }));
  expect(events).toEqual([
    { job: id, state: 'queued', reason: 'waits for a daemon' },
    { job: id, state: 'running', reason: '' },
    { job: id, state: 'failed', reason: 'it broke' },
  ]);
});
