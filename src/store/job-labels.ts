import type { Redis } from 'ioredis';
import type { Keys } from './keys.js';
import { readFields, valueIn } from './replies.js';

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
    const records = some.map((id) => keys.job(id));
    for (const [index, reply] of (await readFields(redis, records, ['name', 'key'])).entries()) {
      const [name, key] = (reply.is === 'wrong type' ? null : valueIn(reply)) ?? [];
      labels.push({ job: some[index] as string, name: textOf(name), key: textOf(key) });
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
