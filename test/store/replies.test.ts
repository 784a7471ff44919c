import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { refusal, remedyOf, replyInWords } from '../../src/common/refusal.js';
import { isRefusal, openStore, patient, retry, type Store } from '../../src/store/index.js';
import { mayBe } from '../../src/store/keys.js';
import { readFields, readHashes, valueIn, write } from '../../src/store/replies.js';
import { failure, ROOT, startRedis } from './home.js';
import { job } from './samples.js';

let server: Awaited<ReturnType<typeof startRedis>>;
let admin: Store;
let store: Store;
beforeAll(async () => {
  server = await startRedis();
  const url = `redis://127.0.0.1:${server.port}`;
  admin = await openStore({ url, onOutage: () => {} });
  await admin.connection.redis.call('ACL', 'SETUSER', 'worker', 'on', '>word', '~*', '&*', '+@all');
  store = await openStore({ url: url.replace('//', '//worker:word@'), onOutage: () => {} });
});
afterAll(async () => {
  await store.close();
  await admin.close();
  await server.stop();
});
beforeEach(async () => {
  await admin.connection.redis.flushall();
});

const acl = (...rules: string[]) => admin.connection.redis.call('ACL', 'SETUSER', 'worker', ...rules);

test('a value, nothing, a wrong type and a refusal are four different things', async () => {
  const { redis } = store.connection;
  await redis.hset('hash', 'a', '1');
  await redis.set('text', 'x');
  const keys = ['hash', 'none', 'text'];
  expect((await readHashes(redis, keys)).map((reply) => reply.is)).toEqual(['value', 'missing', 'wrong type']);
  expect((await readFields(redis, keys, ['a', 'b']))[0]).toEqual({ is: 'value', value: ['1', null] });
  expect((await readFields(redis, keys, ['b'])).map((reply) => reply.is)).toEqual(['missing', 'missing', 'wrong type']);
  await acl('-hgetall', '-hmget', '-exists');
  try {
    for (const replies of [await readHashes(redis, keys), await readFields(redis, keys, ['a'])]) {
      expect(replies.map((reply) => reply.is)).toEqual(['error', 'error', 'error']);
      expect(() => valueIn(replies[1] as never)).toThrow(/NOPERM/);
    }
    expect(await readHashes(redis, [])).toEqual([]);
  } finally {
    await acl('+@all');
  }
});

test('a write that is refused is an error, in a pipeline and in a transaction', async () => {
  const { redis } = store.connection;
  await redis.set('text', 'x');
  for (const batch of [redis.pipeline(), redis.multi()]) {
    const error = await failure(write(batch.set('a', '1').hset('text', 'a', '1')));
    expect(error.message).toContain('WRONGTYPE');
  }
  await acl('-set');
  expect((await failure(write(redis.multi().set('a', '1')))).message).toMatch(/EXECABORT|NOPERM/);
  await acl('+@all');
});

test('a key that holds something else is named', async () => {
  const { redis } = store.connection;
  await redis.set('text', 'x');
  const names = async (call: Promise<unknown>) => refusal(await failure(call), null)?.message;
  expect(await names(redis.hgetall('text'))).toContain('something else (text)');
  const script = "return redis.call('HGETALL', KEYS[2])";
  expect(await names(redis.eval(script, 2, 'other', 'text', 'argument'))).toContain(
    'something else (one of other, text)',
  );
  const { keys, jobs } = store;
  await redis.set(keys.pending, 'x');
  expect(await names(jobs.create(job()))).toContain('something else ({oomtune}:pending).');
  const all = Object.values(keys).map((key) => (typeof key === 'function' ? key('a', 'b' as never, 'c') : key));
  const named = all.filter((key) => ![keys.prefix, keys.wake, keys.aside('a', 'b' as never)].includes(key));
  expect(named.filter((key) => mayBe(key, 'vectorset'))).toEqual([]); // of each the type is known
});

test('who follows something is told of a key of another type at once', async () => {
  const { redis } = store.connection;
  await redis.set(store.keys.hosts, 'x');
  const follower = patient(store, new AbortController().signal);
  const error = await failure(follower.hosts.list());
  expect(refusal(error, null)?.message).toContain('something else ({oomtune}:hosts)');
});

describe('a job whose record cannot be read', () => {
  const READS = ['-hgetall', '-hmget', '-hget'];

  test('is neither cancelled nor missing, and stays where it is', async () => {
    const record = job();
    await store.jobs.create(record);
    await acl(...READS);
    try {
      expect(await store.jobs.standing([record.job])).toMatchObject([{ is: 'error' }]);
      for (const read of [
        () => store.jobs.get(record.job),
        () => store.jobs.latest(),
        () => store.jobs.list(),
        () => store.jobs.live(),
        () => store.jobs.pending(),
      ]) {
        expect(isRefusal(await failure(read()))).toBe(true);
      }
    } finally {
      await acl('+@all');
    }
    expect((await store.jobs.live()).map((one) => one.job)).toEqual([record.job]);
    expect(await store.jobs.isPending([record.job])).toEqual([true]);
  });

  test('of another type keeps nobody from reading and cancelling the others', async () => {
    const [bad, gone, good] = [job(), job(), job()];
    for (const one of [bad, gone, good]) await store.jobs.create(one);
    const { redis } = admin.connection;
    await redis.rename(store.keys.job(bad.job), 'kept');
    await redis.set(store.keys.job(bad.job), 'not a job');
    await redis.del(store.keys.job(gone.job));
    await redis.hset(store.keys.job(good.job), 'cancel', new Date().toISOString());
    const standing = await store.jobs.standing([bad.job, gone.job, good.job]);
    expect(standing.map((reply) => reply.is)).toEqual(['wrong type', 'missing', 'value']);
    expect(standing[2]).toMatchObject({ value: { cancelAsked: true } });
    expect((await store.jobs.list()).map((one) => one.job)).toEqual([good.job]);
    await redis.rename('kept', store.keys.job(bad.job));
    expect((await store.jobs.live()).map((one) => one.job).sort()).toEqual([bad.job, good.job].sort());
  });
});

test('what is refused for a while is tried until it is taken', async () => {
  const { redis } = store.connection;
  await acl('-set');
  const told: string[] = [];
  const done = retry(() => redis.set('a', '1'), { onRefused: (error) => told.push(error.message) });
  await new Promise((resolve) => setTimeout(resolve, 700));
  expect(told).toHaveLength(1);
  expect(told[0]).toContain('NOPERM');
  await acl('+@all');
  await done;
  expect(await redis.get('a')).toBe('1');
  await expect(retry(() => Promise.reject(new TypeError('a fault')))).rejects.toThrow('a fault');
  const stop = new AbortController();
  await acl('-set');
  await expect(retry(() => redis.set('a', '2'), { mostMs: 300 })).rejects.toThrow('NOPERM');
  const stopped = retry(() => redis.set('a', '2'), { signal: stop.signal });
  stop.abort(new Error('enough'));
  await expect(stopped).rejects.toThrow('enough');
  await acl('+@all');
});

test('a refusal is told in words, without where in a script it was met, and a password goes into a URL of the same kind', async () => {
  const { redis } = admin.connection;
  const unknown = await failure(redis.eval("return redis.call('nosuch')", 0));
  expect(replyInWords(unknown.message)).toMatch(/^ERR Unknown Redis command called from (Lua )?script$/);
  const before7 =
    "ERR Error running script (call to f_0a1b): @user_script:2: @user_script: 2: -READONLY You can't write";
  for (const reply of [
    "READONLY You can't write against a read only replica. script: 0a1b, on @user_script:2.",
    before7,
  ])
    expect(replyInWords(reply)).toBe('it is a read-only replica');
  expect(remedyOf(before7, 'redis://host')).toBe('Give the URL of the primary.');
  const noauth = 'NOAUTH Authentication required.';
  expect(remedyOf(noauth, 'unix:///r.sock')).toMatch(/unix:\/\/\/.*password=PASSWORD/);
  expect(remedyOf(noauth, 'unix:///r.sock')).not.toContain('redis://');
  expect(remedyOf(noauth, 'redis://host:6379')).toMatch(/redis:\/\/:password@host:6379/);
  const reply = Object.assign(new Error(noauth), { name: 'ReplyError' });
  expect(refusal(reply, null)?.remedy).toMatch(/redis:\/\/:password@host:6379.*unix:\/\/\//);
});

test('an error of Redis that is not known is one of Redis, and one that a script of ours ran into is one of ours', async () => {
  const of = (reply: string) => refusal(Object.assign(new Error(reply), { name: 'ReplyError' }), null);
  expect(of('ERR max number of clients reached')).toMatchObject({
    ...{ code: 'OOMTUNE_REDIS_REFUSED', exitCode: 5 },
    message: 'Redis refused a command: ERR max number of clients reached.',
    remedy: expect.stringContaining('`oomtune doctor`'),
  });
  expect(of('DENIED by the proxy.')?.message).toBe('Redis refused a command: DENIED by the proxy.');
  const { redis } = admin.connection;
  expect(refusal(await failure(redis.eval("return redis.call('nosuch')", 0)), null)?.exitCode).toBe(5);
  expect(refusal(await failure(redis.eval('return nil + 1', 0)), null)).toBeNull();
});

test('replies of pipelines and transactions are read in one file', () => {
  const raw = /\.exec\(\s*\)|\.pipeline\(|replies\s*\[[^\]]*\]\s*\?\.\s*\[/;
  const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  const found = files.filter((name) => raw.test(readFileSync(join(ROOT, 'src', name), 'utf8')));
  // Two files only build what `write` runs
  expect(found.sort()).toEqual(['store/logs.ts', 'store/replies.ts']);
  expect(readFileSync(join(ROOT, 'src/store/logs.ts'), 'utf8')).not.toMatch(/\.exec\(/);
});
