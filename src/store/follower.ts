import type { Redis } from 'ioredis';
import type { Log } from '../common/log.js';
import type { Connection } from './connection.js';
import type { Keys } from './keys.js';
import { pairs } from './replies.js';

/** An event from the stream, unchecked: each field may be missing. */
export interface StreamEvent {
  /** When, in ms. */
  at: number;
  type: string;
  fields: Record<string, string>;
}

const BLOCK_MS = 10_000;
const AT_ONCE = 500;
const PAUSE_MS = 1000;

/** Follows the stream of events over one connection, through outages. */
export class Follower {
  readonly #key: string;
  readonly #listeners = new Set<(event: StreamEvent) => void>();
  #redis: Redis | null = null;
  #closed = false;
  #last = '0-0';

  constructor(
    private readonly connection: Connection,
    keys: Keys,
    private readonly log: Log,
  ) {
    this.#key = keys.events;
  }

  /** Tells the last `past` events first. */
  async start(past: number): Promise<void> {
    const entries = await this.connection.redis.xrevrange(this.#key, '+', '-', 'COUNT', past);
    this.#redis = this.connection.another();
    for (const [id, fields] of entries.reverse()) this.#tell(id, fields);
    void this.#follow(this.#redis);
  }

  onEvent(listener: (event: StreamEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#closed = true;
    this.#redis?.disconnect();
  }

  async #follow(redis: Redis): Promise<void> {
    while (!this.#closed) {
      try {
        const reply = await redis.xread('COUNT', AT_ONCE, 'BLOCK', BLOCK_MS, 'STREAMS', this.#key, this.#last);
        for (const [id, fields] of reply?.[0]?.[1] ?? []) this.#tell(id, fields);
        if (reply === null) await this.#lookBack(redis);
      } catch (error) {
        if (this.#closed) return;
        this.log.debug({ err: error }, 'the stream of events could not be read');
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS).unref());
      }
    }
  }

  /** A Redis that lost its data counts its entries anew: without this nothing would be heard until it is past the old count. */
  async #lookBack(redis: Redis): Promise<void> {
    const [newest] = await redis.xrevrange(this.#key, '+', '-', 'COUNT', 1);
    const time = (id: string): number => Number(id.split('-')[0]);
    if (newest === undefined || time(newest[0]) < time(this.#last)) this.#last = newest?.[0] ?? '0-0';
  }

  #tell(id: string, entry: string[]): void {
    this.#last = id;
    const fields = pairs(entry);
    const event = { at: Number(id.split('-')[0]), type: fields.type ?? '', fields };
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (error) {
        this.log.warn({ err: error, type: event.type }, 'an event could not be followed');
      }
    }
  }
}
