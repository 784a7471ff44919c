import { afterAll, beforeAll, expect, test } from 'vitest';
import { ForegroundRecommendations } from '../../src/cli/foreground-recommendations.js';
import { openStore, type Store } from '../../src/store/index.js';
import { failure, startRedis } from '../store/home.js';
import { gpu, recommendation } from '../store/samples.js';

let server: Awaited<ReturnType<typeof startRedis>>;
let store: Store;
beforeAll(async () => {
  server = await startRedis();
  store = await openStore({ url: `redis://127.0.0.1:${server.port}`, onOutage: () => {} });
});
afterAll(async () => {
  await store.close();
  await server.stop();
});

test('a command that has begun goes on after so long, with a note; one that has not fails at once', async () => {
  const { recommendations: all, leasing, connection } = store;
  const found = recommendation();
  const notes: string[] = [];
  const refusals: string[] = [];
  const { signal } = new AbortController();
  const parts = {
    ...{ all, signal, note: (text: string) => void notes.push(text) },
    onRefused: (error: Error) => void refusals.push(error.message),
  };
  const records = new ForegroundRecommendations(parts, 700);
  await connection.redis.config('SET', 'min-replicas-to-write', '1');
  expect((await failure(records.put(found, null))).message).toContain('NOREPLICAS');
  await connection.redis.config('SET', 'min-replicas-to-write', '0');
  const wish = { devices: [gpu(0)], count: 1, bytes: null, share: false, onWait: () => {} };
  const lease = await records.leasing(leasing).acquire({ ...wish, owner: 'j-foreground', signal });

  await connection.redis.config('SET', 'min-replicas-to-write', '1');
  const since = Date.now();
  await records.put(found, null);
  expect(Date.now() - since).toBeGreaterThan(600);
  expect(refusals).toHaveLength(1);
  expect(notes).toEqual([
    expect.stringMatching(/^What was found is not recorded as .*too few replicas.*Bring the repl/),
  ]);
  expect((await failure(records.atOnce.put(found, null))).message).toContain('NOREPLICAS');
  const again = Date.now();
  await records.put(found, null);
  expect(Date.now() - again).toBeLessThan(500); // it has waited in vain
  expect(notes).toHaveLength(2);
  expect(await records.get(found.key)).toBeNull(); // it is read, and not there

  await connection.redis.config('SET', 'min-replicas-to-write', '0');
  await records.put(found, null);
  expect(await records.get(found.key)).toMatchObject({ key: found.key });
  await lease.release();
});

test('a key of another type is told at once, with its name: no time mends it', async () => {
  const { recommendations: all, leasing, connection, keys } = store;
  const notes: string[] = [];
  const { signal } = new AbortController();
  const records = new ForegroundRecommendations({
    ...{ all, signal, note: (text: string) => void notes.push(text), onRefused: () => {} },
  });
  const wish = { devices: [gpu(0)], count: 1, bytes: null, share: false, onWait: () => {} };
  const lease = await records.leasing(leasing).acquire({ ...wish, owner: 'j-wrongtype', signal });
  await connection.redis.rename(keys.configs, 'kept').catch(() => {});
  await connection.redis.set(keys.configs, 'x');
  const since = Date.now();
  await records.put(recommendation(), null);
  expect(Date.now() - since).toBeLessThan(2000);
  expect(notes).toEqual([
    expect.stringMatching(/is not recorded as .*something else \(\{oomtune\}:configs\)\. Delete the key/),
  ]);
  await connection.redis.del(keys.configs);
  await lease.release();
});
