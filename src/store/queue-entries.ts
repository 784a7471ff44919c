import type { Redis } from 'ioredis';
import { Script } from './script.js';

/**
 * KEYS: prioritized, wait, active. ARGV: ids of entries → those that stand in one of them. That an entry's own hash is there
 * says nothing: Redis may refuse a script of BullMQ's after it wrote that.
 */
const STANDING = new Script(`
local found = {}
for _, id in ipairs(ARGV) do
  if redis.call('ZSCORE', KEYS[1], id) or redis.call('LPOS', KEYS[2], id) or redis.call('LPOS', KEYS[3], id) then
    found[#found + 1] = id
  end
end
return found`);

/** How many are asked for in one step, which nothing else of Redis runs beside. */
const AT_ONCE = 500;

/** Which of these entries stand in a queue of BullMQ, to be taken or taken. `queue`: what its keys begin with. */
export async function standing(redis: Redis, queue: string, ids: string[]): Promise<string[]> {
  const keys = ['prioritized', 'wait', 'active'].map((list) => `${queue}:${list}`);
  const found: string[] = [];
  for (let at = 0; at < ids.length; at += AT_ONCE)
    found.push(...((await STANDING.run(redis, keys, ids.slice(at, at + AT_ONCE))) as string[]));
  return found;
}
