import type { Redis } from 'ioredis';
import type { Connection } from './connection.js';
import type { Keys } from './keys.js';
import { pairs } from './pairs.js';
import { EVENTS_KEPT } from './recommendations.js';
import type { OomtuneEvent } from './types.js';

/** What a daemon or a waiter is woken by: `<word> <job or nothing>`. */
export type Wake = 'submit' | 'cancel' | 'hold' | 'release' | 'ended' | 'lease' | 'host' | 'label';

/** The bounded stream of what happened, and the channel that wakes those who wait for it. */
export class Events {
  readonly #connection: Connection;
  readonly #keys: Keys;
  readonly #listeners = new Set<(wake: Wake, job: string) => void>();
  #subscribed: Promise<unknown> | null = null;

  constructor(connection: Connection, keys: Keys) {
    this.#connection = connection;
    this.#keys = keys;
  }

  get #redis(): Redis {
    return this.#connection.redis;
  }

  /** Adds an event to `{oomtune}:events`; values that are no strings are written as JSON. */
  async add(event: OomtuneEvent): Promise<void> {
    const fields = Object.entries(event).flatMap(([name, value]) => [
      name,
      value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value),
    ]);
    await this.#redis.xadd(this.#keys.events, 'MAXLEN', '~', EVENTS_KEPT, '*', ...fields);
  }

  /** The latest events, oldest first. */
  async latest(count: number): Promise<Record<string, string>[]> {
    const entries = await this.#redis.xrevrange(this.#keys.events, '+', '-', 'COUNT', count);
    return entries.reverse().map(([id, fields]) => ({ id, ...pairs(fields) }));
  }

  async wake(wake: Wake, job = ''): Promise<void> {
    await this.#redis.publish(this.#keys.wake, `${wake} ${job}`);
  }

  /** Calls `listener` at each wake; returns how to stop. A wake may be lost with the connection: look now and then too. */
  async listen(listener: (wake: Wake, job: string) => void): Promise<() => void> {
    this.#listeners.add(listener);
    this.#subscribed ??= this.#subscribe();
    await this.#subscribed;
    return () => this.#listeners.delete(listener);
  }

  async #subscribe(): Promise<void> {
    const { subscriber } = this.#connection;
    subscriber.on('message', (_channel: string, message: string) => {
      const [wake, job = ''] = message.split(' ');
      for (const listener of this.#listeners) listener(wake as Wake, job);
    });
    await subscriber.subscribe(this.#keys.wake);
  }
}
