import type { Redis } from 'ioredis';
import { complaint } from '../contract/fields.js';
import { storedTrace } from '../contract/state.js';
import type { MemorySample } from '../contract/verbs.js';
import type { Keys } from './keys.js';
import { refuse } from './refused.js';

/** A job's memory since its first launch, thinned out evenly to a fixed number of samples. */
export interface MemoryTrace {
  /** The try that it belongs to: a retry begins a new one. */
  epoch: number;
  budget_bytes: number | null;
  /** Each sample stands for so many looks. */
  every: number;
  samples: readonly MemorySample[];
}

const KEPT_SECONDS = 7 * 24 * 3600;

/** Each job's memory over time, for any host and after its daemon is gone. */
export class MemoryTraces {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  /** Replaces what was kept of the job. */
  async put(job: string, { epoch, budget_bytes, every, samples }: MemoryTrace): Promise<void> {
    const begin = samples[0]?.at ?? 0;
    let last = begin;
    const rows = samples.map(({ at, launch, bytes }) => {
      const row = [Math.max(0, at - last), launch, Math.round(bytes)];
      last = Math.max(at, last); // a clock that was set back would make a time before the one before
      return row;
    });
    const text = JSON.stringify({ schema: 1, epoch, budget_bytes, every, begin, samples: rows });
    await this.redis.set(this.keys.memory(job), text, 'EX', KEPT_SECONDS);
  }

  /** Of the try that the job is in now. Null: nothing was seen of it, or it has been forgotten. */
  async get(job: string): Promise<MemoryTrace | null> {
    const key = this.keys.memory(job);
    const [text, epoch] = await Promise.all([this.redis.get(key), this.redis.hget(this.keys.job(job), 'epoch')]);
    if (text === null) return null;
    const read = parse(text);
    if (typeof read === 'string') {
      await this.redis.del(key);
      await refuse(this.redis, this.keys, key, read);
      return null;
    }
    return String(read.epoch) === (epoch ?? '1') ? read : null;
  }
}

/** The trace, or an error message. */
function parse(text: string): MemoryTrace | string {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return 'it is no JSON';
  }
  const parsed = storedTrace.safeParse(json);
  if (!parsed.success) return complaint(parsed.error);
  const { epoch, budget_bytes, every, begin, samples } = parsed.data;
  let at = begin;
  return {
    epoch,
    budget_bytes,
    every,
    samples: samples.map(([passed, launch, bytes]) => {
      at += passed;
      return { at, launch, bytes };
    }),
  };
}
