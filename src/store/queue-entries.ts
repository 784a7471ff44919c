import type { Redis } from 'ioredis';
import { runScript } from './scripts.js';

/** How many are asked for in one step, which nothing else of Redis runs beside. */
const AT_ONCE = 500;

/** Which of these entries stand in a queue of BullMQ, to be taken or taken. `queue`: what its keys begin with. */
export async function standing(redis: Redis, queue: string, ids: string[]): Promise<string[]> {
  const keys = ['prioritized', 'wait', 'active'].map((list) => `${queue}:${list}`);
  const found: string[] = [];
  for (let at = 0; at < ids.length; at += AT_ONCE)
    found.push(...((await runScript(redis, 'queue/standing', keys, ids.slice(at, at + AT_ONCE))) as string[]));
  return found;
}
