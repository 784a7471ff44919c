import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';

/** A Lua script: runs as one atomic step in Redis. Sent whole only when Redis does not know it yet. */
export class Script {
  readonly #lua: string;
  readonly #sha: string;

  constructor(lua: string) {
    this.#lua = lua;
    this.#sha = createHash('sha1').update(lua).digest('hex');
  }

  async run(redis: Redis, keys: string[], args: (string | number)[]): Promise<unknown> {
    try {
      return await redis.evalsha(this.#sha, keys.length, ...keys, ...args);
    } catch (error) {
      if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
      return redis.eval(this.#lua, keys.length, ...keys, ...args);
    }
  }
}
