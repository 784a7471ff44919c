import type { Redis } from 'ioredis';
import { readJson } from '../contract/fields.js';
import { notifyMarks as marks, type NotifyMarks } from '../contract/notification.js';
import type { Keys } from './keys.js';

/** How a job stands of which nothing has been told: written with its record, and again where it is queued anew. */
export const OWED = JSON.stringify(marks.parse({}));

/** The jobs that somebody is to be told of. Whom, stands in a private file of the submitting host: a webhook's address is a secret. */
export class NotifyStore {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  async owed(): Promise<Map<string, NotifyMarks>> {
    const found = await this.redis.hgetall(this.keys.notify);
    return new Map(Object.entries(found).map(([job, text]) => [job, readJson(marks, text) ?? marks.parse({})]));
  }

  /** Null: nobody is to be told of it. */
  async marks(job: string): Promise<NotifyMarks | null> {
    const text = await this.redis.hget(this.keys.notify, job);
    return text === null ? null : (readJson(marks, text) ?? marks.parse({}));
  }

  async mark(job: string, told: NotifyMarks): Promise<void> {
    await this.redis.hset(this.keys.notify, job, JSON.stringify(told));
  }

  /** Nothing more is to be told of it. */
  async settle(job: string): Promise<void> {
    await this.redis.hdel(this.keys.notify, job);
  }

  /** Writes into its record, ended or not, what became of a notification. */
  async note(job: string, said: string): Promise<void> {
    const key = this.keys.job(job);
    if ((await this.redis.exists(key)) === 1)
      await this.redis.hset(key, 'notification', JSON.stringify(said.slice(0, 1000)));
  }
}
