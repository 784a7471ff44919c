import type { Redis } from 'ioredis';
import type { Requirement } from '../contract/state.js';
import type { Connection } from './connection.js';
import type { Keys } from './keys.js';
import { write } from './replies.js';
import { runScript } from './scripts.js';

/** Bounds one step, during which Redis does nothing else. */
const AT_ONCE = 500;
/** The score of an entry is its priority times this, and a counter. */
const PRIORITY_STEP = 2 ** 32;
/** Keys of a queue that hold entries, and the others. */
const LISTS = ['wait', 'active', 'prioritized', 'delayed', 'paused', 'waiting-children', 'completed', 'failed'];
const OTHERS = ['meta', 'marker', 'id', 'events', 'pc', 'stalled', 'stalled-check', 'limiter'];

/** The first entry of a queue. `priority`: BullMQ's; null: it was put back. */
interface Head {
  priority: number | null;
  /** When it was added (ms); 0: nothing stands there. */
  since: number;
}

/** The only file that knows BullMQ's private keys, for what BullMQ has no call for. Tests fail if an upgrade changes them. */
export class QueueEntries {
  constructor(
    private readonly connection: Connection,
    private readonly keys: Keys,
  ) {}

  /** What BullMQ is to put before its keys. */
  get prefix(): string {
    return this.keys.prefix;
  }

  get #redis(): Redis {
    return this.connection.redis;
  }

  /** Labels that queues were made for, and what their jobs ask of a host, as JSON that nobody has checked. */
  labels(): Promise<Record<string, string>> {
    return this.#redis.hgetall(this.keys.labels);
  }

  /** False: it was there. */
  async addLabel(label: string, requirement: Requirement): Promise<boolean> {
    return (await this.#redis.hset(this.keys.labels, label, JSON.stringify(requirement))) === 1;
  }

  /** Which of these queues hold nothing, whatever becomes of it. */
  async empty(labels: string[]): Promise<Set<string>> {
    const found = await Promise.all(
      labels.map((label) => this.#redis.exists(...LISTS.map((list) => this.#key(label, list)))),
    );
    return new Set(labels.filter((_, at) => found[at] === 0));
  }

  /** Removes a queue with its label, unless it holds something at that moment. An entry that is added later makes it anew. */
  async removeEmpty(label: string): Promise<boolean> {
    const keys = [...LISTS, ...OTHERS].map((name) => this.#key(label, name));
    return (await runScript(this.#redis, 'queue/remove', [this.keys.labels, ...keys], [label, LISTS.length])) === 1;
  }

  /** Which of these entries stand in a queue, to be taken or taken. */
  async standing(label: string, ids: string[]): Promise<string[]> {
    const keys = ['prioritized', 'wait', 'active'].map((list) => this.#key(label, list));
    const found: string[] = [];
    for (let at = 0; at < ids.length; at += AT_ONCE)
      found.push(...((await runScript(this.#redis, 'queue/standing', keys, ids.slice(at, at + AT_ONCE))) as string[]));
    return found;
  }

  /** Takes out what was taken and holds no JSON: BullMQ finds so only afterwards, and would find so for ever. Their ids. */
  async dropUnreadable(label: string): Promise<string[]> {
    const active = this.#key(label, 'active');
    const dropped: string[] = [];
    for (const id of await this.#redis.lrange(active, '0', '-1')) {
      const entry = this.#key(label, id);
      const [data, opts] = await this.#redis.hmget(entry, 'data', 'opts');
      if (isJson(data) && isJson(opts)) continue;
      const stalled = this.#key(label, 'stalled');
      await write(this.#redis.multi().lrem(active, 0, id).srem(stalled, id).del(entry, `${entry}:lock`));
      dropped.push(id);
    }
    return dropped;
  }

  /** What is taken next. */
  async head(label: string): Promise<Head> {
    const [id, score] = await this.#redis.zrange(this.#key(label, 'prioritized'), '0', '0', 'WITHSCORES');
    // Entries that were put back are in the list itself
    const next = id ?? (await this.#redis.lindex(this.#key(label, 'wait'), -1));
    const since = next == null ? null : await this.#redis.hget(this.#key(label, next), 'timestamp');
    return {
      priority: score === undefined ? null : Math.floor(Number(score) / PRIORITY_STEP),
      since: Number(since ?? 0),
    };
  }

  #key(label: string, name: string): string {
    return `${this.keys.prefix}:${label}:${name}`;
  }
}

function isJson(text: string | null | undefined): boolean {
  try {
    JSON.parse(text ?? '{}');
    return true;
  } catch {
    return false;
  }
}
