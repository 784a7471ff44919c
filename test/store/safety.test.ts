import { networkInterfaces } from 'node:os';
import { afterEach, expect, test } from 'vitest';
import { openStore, parseRedisUrl } from '../../src/store/index.js';
import { checkRedisIsSafe } from '../../src/store/safety.js';
import { failure, startRedis, useHome } from './home.js';

useHome();
const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

async function check(args: string[], url: (port: number) => string, allowInsecure = false): Promise<void> {
  const server = await startRedis(args);
  stops.push(server.stop);
  const store = await openStore({ url: `redis://127.0.0.1:${server.port}` });
  stops.push(store.close);
  await checkRedisIsSafe(store.connection.redis, parseRedisUrl(url(server.port)), { allowInsecure });
}

test.each(['allkeys-lru', 'volatile-ttl', 'allkeys-random'])(
  'a Redis that evicts (%s) is refused with the command that mends it',
  async (policy) => {
    const error = await failure(check(['--maxmemory-policy', policy], (port) => `redis://127.0.0.1:${port}`));
    expect(error.code).toBe('OOMTUNE_REDIS_UNSAFE');
    expect(error.message).toContain(policy);
    expect(error.remedy).toContain('CONFIG SET maxmemory-policy noeviction');
  },
);

test('beyond loopback both TLS and a password are needed, unless told otherwise', async () => {
  const address =
    Object.values(networkInterfaces())
      .flat()
      .find((one) => one?.family === 'IPv4' && !one.internal)?.address ?? '192.0.2.1';
  for (const url of [`redis://${address}:1`, `redis://:password@${address}:1`, `rediss://${address}:1`]) {
    const error = await failure(check([], () => url));
    expect(error.code, url).toBe('OOMTUNE_REDIS_UNSAFE');
    expect(error.remedy).toContain('--allow-insecure-redis');
  }
  await check([], () => `rediss://:password@${address}:1`);
  await check([], () => `redis://${address}:1`, true);
  await check([], (port) => `redis://127.0.0.1:${port}`);
});
