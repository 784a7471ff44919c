import type { Redis } from 'ioredis';
import type { OomtuneEvent } from '../contract/job.js';
import type { Connection } from './connection.js';
import type { Keys } from './keys.js';
import { EVENTS_KEPT } from './recommendations.js';

/** What wakes a daemon or a waiter: `<word> <job or nothing>`. `back`: after a lost connection, wakes may have been missed. */
export type Wake = 'submit' | 'cancel' | 'hold' | 'release' | 'ended' | 'pause' | 'lease' | 'host' | 'label' | 'back';

/** The bounded stream of events, and the channel that wakes waiters. */
export class Events {
  readonly #listeners = new Set<(wake: Wake, job: string) => void>();
  #subscribed: Promise<unknown> | null = null;

  constructor(
    private readonly connection: Connection,
    private readonly keys: Keys,
  ) {}

  get #redis(): Redis {
    return this.connection.redis;
  }

  /** Adds an event to `{oomtune}:events`; values that are no strings are written as JSON. */
  async add(event: OomtuneEvent): Promise<void> {
    const fields = Object.entries(event).flatMap(([name, value]) => [
      name,
      value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value),
    ]);
    await this.#redis.xadd(this.keys.events, 'MAXLEN', '~', EVENTS_KEPT, '*', ...fields);
  }

  async wake(wake: Wake, job = ''): Promise<void> {
    await this.#redis.publish(this.keys.wake, `${wake} ${job}`);
  }

  /** Calls `listener` at each wake; returns how to stop. A wake may be lost with the connection: `back` tells when. */
  async listen(listener: (wake: Wake, job: string) => void): Promise<() => void> {
    this.#listeners.add(listener);
    this.#subscribed ??= this.#subscribe();
    await this.#subscribed;
    return () => this.#listeners.delete(listener);
  }

  #tell(wake: Wake, job: string): void {
    for (const listener of this.#listeners) listener(wake, job);
  }

  async #subscribe(): Promise<void> {
    const { subscriber } = this.connection;
    subscriber.on('message', (_channel: string, message: string) => {
      const [wake, job = ''] = message.split(' ');
      this.#tell(wake as Wake, job);
    });
    await subscriber.subscribe(this.keys.wake);
    // Wakes during an outage are lost; `back` says so once the channel is subscribed again
    subscriber.on('ready', () => {
      subscriber
        .subscribe(this.keys.wake)
        .then(() => this.#tell('back', ''))
        .catch(() => {}); // lost once more: the next 'ready' tells
    });
  }
}
