import type { Redis } from 'ioredis';
import type { JobRecord } from '../contract/job.js';
import type { Keys } from './keys.js';
import { write } from './replies.js';

const KEPT = 10;
const DAYS = 90;

type Ran = Pick<JobRecord, 'name' | 'options' | 'started_at'>;

/** How long successful jobs took, by name, to predict the next. */
export class Durations {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  /** Notes how long a job took that has succeeded, from its first launch on. */
  async note({ name, options, started_at: begun }: Ran): Promise<void> {
    if (begun === null) return;
    const key = this.keys.durations(options.name ?? name);
    const text = String(Math.ceil((Date.now() - Date.parse(begun)) / 1000));
    await write(
      this.redis
        .multi()
        .lpush(key, text)
        .ltrim(key, 0, KEPT - 1)
        .expire(key, DAYS * 86_400),
    );
  }

  /** Seconds that the longest of the last ten of its name took; null: none of them has succeeded. */
  async expected({ name, options }: Ran): Promise<number | null> {
    const all = (await this.redis.lrange(this.keys.durations(options.name ?? name), 0, KEPT - 1)).map(Number);
    const known = all.filter((seconds) => Number.isFinite(seconds) && seconds >= 0);
    return known.length === 0 ? null : Math.max(...known);
  }
}
