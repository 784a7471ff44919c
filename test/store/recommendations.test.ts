import { execFileSync } from 'node:child_process';
import { createClient } from 'redis';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { useHome } from './home.js';
import { recommendation } from './samples.js';

const home = useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore();
});
afterAll(() => store.close());
beforeEach(async () => {
  await store.connection.redis.flushall();
});

const KEY = 'resnet50:nvidia-h200:24g:1x';
/** As the contract has it: every value a string, nothing an empty one. */
const HASH = {
  schema: '1',
  key: KEY,
  name: 'resnet50',
  gpu_model: 'NVIDIA H200',
  budget_bytes: '25769803776',
  world_size: '1',
  micro_batch: '548',
  accumulation: '2',
  effective_batch: '1096',
  amp: 'bf16',
  checkpointing: '0',
  max_micro_batch: '564',
  known_bad_micro_batch: '565',
  peak_bytes: '25600000000',
  samples_per_s: '2400.5',
  verified_at: '2026-01-02T03:04:05.678Z',
  status: 'verified',
  command_digest: '0123abcd',
  torch: '2.8.0',
  driver: '',
  probes: JSON.stringify(recommendation().probes),
};

test('redis-cli HGETALL shows what the contract promises, and no more', async () => {
  await store.recommendations.put(recommendation(), null);
  const lines = execFileSync('redis-cli', ['-s', `${home}/redis/redis.sock`, 'HGETALL', `{oomtune}:config:${KEY}`])
    .toString()
    .replace(/\n$/, '')
    .split('\n');
  const hash = Object.fromEntries(lines.flatMap((line, at) => (at % 2 === 0 ? [[line, lines[at + 1]]] : [])));
  expect(hash).toEqual(HASH);
});

test('what fills the memory is kept with it, and a record without that is as good', async () => {
  const part = { parameters: 5, gradients: 5, optimizer_state: 10, activations: null, activations_per_sample: null };
  const whole = { micro_batch: 548, accumulation: 2, peak_bytes: 25, peak_in: 'optimizer' as const };
  const memory = { ...whole, ...part, allocator_slack: null, context: 3, rest: 2 };
  await store.recommendations.put(recommendation({ memory }), null);
  expect((await store.recommendations.get(KEY))?.memory).toEqual(memory);
  expect(JSON.parse((await store.connection.redis.hget(`{oomtune}:config:${KEY}`, 'memory')) ?? '')).toEqual(memory);
  await store.recommendations.put(recommendation({ memory: null }), null);
  expect((await store.recommendations.get(KEY))?.memory).toBeNull();
  await store.recommendations.put(recommendation(), null);
  expect(await store.recommendations.get(KEY)).toEqual(recommendation());
});

test('the speeds that decided on its rung are kept with it', async () => {
  const speed = { amp: 'bf16' as const, checkpointing: false, micro_batch: 548, samples_per_s: 2400.5 };
  const comparison = { together: true, speeds: [{ ...speed, spread: 12.25, rounds: 5 }] };
  await store.recommendations.put(recommendation({ comparison }), null);
  expect((await store.recommendations.get(KEY))?.comparison).toEqual(comparison);
  await store.recommendations.put(recommendation(), null);
  expect(await store.recommendations.get(KEY)).toEqual(recommendation());
});

test('a second client library reads the record, the index by time verified, and the event', async () => {
  await store.recommendations.put(recommendation(), 'j-abcd2345');
  const client = createClient({ socket: { path: `${home}/redis/redis.sock`, tls: false } });
  await client.connect();
  expect({ ...(await client.hGetAll(`{oomtune}:config:${KEY}`)) }).toEqual(HASH);
  expect(await client.zRangeWithScores('{oomtune}:configs', 0, -1)).toEqual([
    { value: KEY, score: Date.parse('2026-01-02T03:04:05.678Z') },
  ]);
  const [event] = await client.xRange('{oomtune}:events', '-', '+');
  expect({ ...event?.message }).toEqual({ type: 'config', key: KEY, job: 'j-abcd2345', status: 'verified' });
  await client.close();
});

test('what was put is read back the same, by key and by name, the latest first', async () => {
  const older = recommendation({
    key: 'resnet50:cpu:300m:1x',
    verified_at: '2025-01-01T00:00:00.000Z',
    checkpointing: true,
  });
  await store.recommendations.put(recommendation(), null);
  await store.recommendations.put(older, null);
  await store.recommendations.put(recommendation({ key: 'bert:cpu:1g:1x', name: 'bert' }), null);
  expect(await store.recommendations.get(older.key)).toEqual(older);
  expect(await store.recommendations.find('resnet50')).toEqual([recommendation(), older]);
  expect(await store.recommendations.find(KEY)).toEqual([recommendation()]);
  expect(await store.recommendations.list()).toHaveLength(3);
  expect(await store.recommendations.get('nothing')).toBeNull();
});

test('a put replaces the whole record: nothing of an older one is left', async () => {
  await store.connection.redis.hset(`{oomtune}:config:${KEY}`, 'left', 'over');
  await store.recommendations.put(recommendation({ known_bad_micro_batch: null }), null);
  const hash = await store.connection.redis.hgetall(`{oomtune}:config:${KEY}`);
  expect(hash.left).toBeUndefined();
  expect(hash.known_bad_micro_batch).toBe('');
});

test('a demotion keeps the smallest size that is known to be bad', async () => {
  await store.recommendations.put(recommendation(), null);
  await store.recommendations.demote(KEY, 500, 'j-abcd2345');
  await store.recommendations.demote(KEY, 530, null);
  expect(await store.recommendations.get(KEY)).toEqual(
    recommendation({ status: 'demoted', known_bad_micro_batch: 500 }),
  );
  await store.recommendations.demote('nothing', 1, null);
  expect(await store.connection.redis.exists('{oomtune}:config:nothing')).toBe(0);
});

test('records that cannot be trusted are refused and noted, and the others still read', async () => {
  const { redis } = store.connection;
  await store.recommendations.put(recommendation(), null);
  const hostile: [string, Record<string, string> | string][] = [
    ['a', { ...HASH, key: 'a', micro_batch: '12; rm -rf /' }],
    ['b', { ...HASH, key: 'b', probes: '{"not": "a list"}' }],
    ['c', { ...HASH, key: 'c', amp: 'fp8' }],
    ['d', HASH], // its key names another
    ['e', 'a string, no hash'],
    ['f', { schema: '2' }],
    ['g', { ...HASH, key: 'g', micro_batch: '-1' }],
    ['h', { ...HASH, key: 'h', peak_bytes: '1e400' }],
  ];
  for (const [key, value] of hostile) {
    if (typeof value === 'string') await redis.set(store.keys.config(key), value);
    else await redis.hset(store.keys.config(key), value);
    await redis.zadd(store.keys.configs, 1, key);
  }
  expect(await store.recommendations.list()).toEqual([recommendation()]);
  expect(await store.recommendations.get('a')).toBeNull();
  const refused = await redis.lrange(store.keys.refused, '0', '-1');
  expect(refused).toHaveLength(hostile.length);
  expect(refused.join()).toContain('micro_batch');
});
