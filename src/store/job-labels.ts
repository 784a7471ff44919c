import type { Redis } from 'ioredis';
import type { Keys } from './keys.js';

/** What a job is called: its id, its name, and the key of its configuration. */
export interface JobLabel {
  job: string;
  name: string | null;
  key: string | null;
}

/** What every job is called, the latest first; nothing of it has been checked. */
export async function readLabels(redis: Redis, keys: Keys): Promise<JobLabel[]> {
  const ids = await redis.zrevrange(keys.jobs, 0, -1);
  const labels: JobLabel[] = [];
  for (let at = 0; at < ids.length; at += 500) {
    const some = ids.slice(at, at + 500);
    const pipeline = redis.pipeline();
    for (const id of some) pipeline.hmget(keys.job(id), 'name', 'key');
    const replies = (await pipeline.exec()) ?? [];
    for (const [index, job] of some.entries()) {
      const [name, key] = (replies[index]?.[1] ?? []) as (string | null)[];
      labels.push({ job, name: textOf(name), key: textOf(key) });
    }
  }
  return labels;
}

/** A field that holds a string as JSON; null for anything else. */
function textOf(field: string | null | undefined): string | null {
  try {
    const value: unknown = JSON.parse(field ?? 'null');
    return typeof value === 'string' ? value : null;
  } catch {
    return null;
  }
}
