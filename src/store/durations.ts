import type { Redis } from 'ioredis';
import type { Keys } from './keys.js';
import { write } from './replies.js';

const KEPT = 10;
const DAYS = 90;

/** How long jobs took that succeeded, by name: what the next of a name is expected to take. */
export class Durations {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  /** `seconds`: from its first launch to its end. */
  async add(name: string, seconds: number): Promise<void> {
    const key = this.keys.durations(name);
    const text = String(Math.ceil(seconds));
    await write(
      this.redis
        .multi()
        .lpush(key, text)
        .ltrim(key, 0, KEPT - 1)
        .expire(key, DAYS * 86_400),
    );
  }

  /** Seconds that the longest of the last ten took; null: none of the name has succeeded. */
  async longest(name: string): Promise<number | null> {
    const all = (await this.redis.lrange(this.keys.durations(name), 0, KEPT - 1)).map(Number);
    const known = all.filter((seconds) => Number.isFinite(seconds) && seconds >= 0);
    return known.length === 0 ? null : Math.max(...known);
  }
}
