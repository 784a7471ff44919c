import type { Redis } from 'ioredis';
import { readJson } from '../contract/fields.js';
import { usageEntry } from '../contract/state.js';
import { fairShare } from './fair-share.js';
import type { Keys } from './keys.js';

/** What each user has used of devices lately. Written by the scripts of the leases alone. */
export class Usage {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
    private readonly halfLifeMs: number | undefined,
  ) {}

  /** Device-seconds by user, those of a half-life ago counted half. */
  async list(): Promise<Map<string, number>> {
    const [all, time] = await Promise.all([this.redis.hgetall(this.keys.usage), this.redis.time()]);
    const now = Number(time[0]) * 1000 + Number(time[1]) / 1000;
    const halfLifeMs = this.halfLifeMs ?? fairShare().halfLifeMs;
    const used = Object.entries(all).flatMap(([user, text]): [string, number][] => {
      const read = readJson(usageEntry, text);
      return read === null ? [] : [[user, read.seconds * 0.5 ** (Math.max(0, now - read.at) / halfLifeMs)]];
    });
    return new Map(used);
  }
}
