import type { Redis } from 'ioredis';
import type { Keys } from './keys.js';
import { write } from './replies.js';

const KEPT = 200;
const seen = new Set<string>();

/**
 * Sets an untrusted record aside: notes it in Redis (bounded), logs it once, and otherwise treats it as absent. `level`: of the
 * log; `info` for what a command line says by itself.
 */
export async function refuse(
  redis: Redis,
  keys: Keys,
  what: string,
  why: string,
  level: 'info' | 'warn' = 'warn',
): Promise<void> {
  const mark = `${what} ${why}`;
  if (seen.has(mark)) return;
  if (seen.size > 1000) seen.clear();
  seen.add(mark);
  const note = JSON.stringify({ what: what.slice(0, 512), why: why.slice(0, 512), at: new Date().toISOString() });
  await write(
    redis
      .multi()
      .lpush(keys.refused, note)
      .ltrim(keys.refused, 0, KEPT - 1),
  );
  const { createLog } = await import('../common/log.js');
  createLog('store')[level]({ record: what.slice(0, 512), why: why.slice(0, 512) }, 'a record in Redis was refused');
}
