import type { Redis } from 'ioredis';
import { OomtuneError } from '../common/errors.js';
import type { Keys } from './keys.js';
import { isRefusal } from './retry.js';
import type { RedisTarget } from './url.js';

/** A field of INFO; null: missing. */
const infoField = (info: string, name: string): string | null =>
  new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? null;

/** INFO's facts on a server, for people. */
export function serverFacts(info: string) {
  const number = (name: string): number | null => Number(infoField(info, name)) || null;
  return { pid: number('process_id'), version: infoField(info, 'redis_version'), used_bytes: number('used_memory') };
}

/** Throws OOMTUNE_REDIS_UNSAFE for a Redis that strangers can write to (and so run commands as this user), or that evicts. */
export async function checkRedisIsSafe(
  redis: Redis,
  target: RedisTarget,
  { allowInsecure }: { allowInsecure: boolean },
): Promise<void> {
  if (!target.guarded && !allowInsecure) {
    const tls = target.options.tls !== undefined;
    throw new OomtuneError(
      'OOMTUNE_REDIS_UNSAFE',
      `Redis at ${target.shown} is reached over the network ${tls ? 'without a password' : 'without TLS'}: whoever can write to it runs commands here.`,
      'Use rediss://user:password@host:port, a unix socket or a tunnel to 127.0.0.1; --allow-insecure-redis takes the risk.',
    );
  }
  const info = await redis.info();
  const version = infoField(info, 'redis_version') ?? '';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major < 6 || (major === 6 && minor < 2)) {
    throw new OomtuneError(
      'OOMTUNE_REDIS_UNSAFE',
      `Redis at ${target.shown} is version ${version || 'unknown'}; oomtune needs 6.2 or newer.`,
      'Upgrade it, or leave --redis out to use the embedded Redis.',
    );
  }
  const policy = infoField(info, 'maxmemory_policy') ?? '';
  if (policy !== '' && policy !== 'noeviction') {
    throw new OomtuneError(
      'OOMTUNE_REDIS_UNSAFE',
      `Redis at ${target.shown} may drop keys when it is full (maxmemory-policy ${policy}): jobs would be lost.`,
      'redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf.',
    );
  }
}

/** How Redis refuses what anybody writes. With other refusals it may take what a daemon writes, who has rights of his own. */
const FROM_ALL = /^(OOM|MISCONF|NOREPLICAS) /;

/** What Redis answers whoever writes at present; null: it takes that, as far as is known here. Changes nothing. */
export async function refusalOfWrites(redis: Redis, keys: Keys): Promise<string | null> {
  try {
    await redis.setrange(`${keys.prefix}:doctor`, 0, ''); // no character: no key is made
    return null;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return FROM_ALL.test(error.message) ? error.message : null;
  }
}

/** Throws Redis's error if scripts may not write and wake: replicas, full servers and ACLs allow reading and refuse the first job. */
export async function checkRedisTakesWrites(redis: Redis, keys: Keys): Promise<void> {
  const script = "redis.call('PUBLISH', KEYS[2], '') return redis.call('SET', KEYS[1], '', 'PX', 1000)";
  await redis.eval(script, 2, `${keys.prefix}:doctor`, keys.wake);
}
