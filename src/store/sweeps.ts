import type { Redis } from 'ioredis';
import type { Events } from './events.js';
import type { Keys } from './keys.js';

const SECONDS = 90 * 86_400;

/** Sweeps that have a configuration: before, only one of their jobs is started, and searches for all. */
export class Sweeps {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
    private readonly events: Events,
  ) {}

  /** A job of it runs: the others need not wait for it any longer. */
  async settle(sweep: string): Promise<void> {
    const known = await this.redis.set(this.keys.sweep(sweep), '1', 'EX', SECONDS, 'GET');
    if (known === null) await this.events.wake('release');
  }

  async settled(sweeps: string[]): Promise<Set<string>> {
    if (sweeps.length === 0) return new Set();
    const known = await this.redis.mget(sweeps.map((sweep) => this.keys.sweep(sweep)));
    return new Set(sweeps.filter((_, at) => known[at] !== null));
  }
}
