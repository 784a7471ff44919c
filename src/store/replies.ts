import type { ChainableCommander, Redis } from 'ioredis';

/** What Redis replies as a flat list: field, value, field, value. */
export function pairs(fields: string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let at = 0; at + 1 < fields.length; at += 2) record[fields[at] as string] = fields[at + 1] as string;
  return record;
}

/**
 * What Redis said to one of several commands: four things that are never the same. Whatever ends, drops or starts something
 * is decided on a `value`; that nobody could say (`error`) decides nothing. This is the only file that reads the replies
 * of a pipeline or a transaction.
 */
export type Reply<T> =
  | { is: 'value'; value: T }
  | { is: 'missing' }
  | { is: 'wrong type'; error: Error }
  | { is: 'error'; error: Error };

/** A reply in a form that no Redis gives to this command. */
class UnexpectedReply extends Error {}

/** All fields of each hash, in the order of the keys. Rejects when there is no connection to ask by. */
export function readHashes(redis: Redis, keys: string[]): Promise<Reply<Record<string, string>>[]> {
  const batch = redis.pipeline();
  for (const key of keys) batch.hgetall(key);
  return read(batch, keys.length, (raw) => {
    if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) return undefined;
    return Object.keys(raw).length === 0 ? null : (raw as Record<string, string>);
  });
}

/** These fields of each hash, null for a field that it lacks. `missing`: it has none of them, or there is no such key. */
export function readFields(
  redis: Redis,
  keys: string[],
  fields: readonly string[],
): Promise<Reply<(string | null)[]>[]> {
  const batch = redis.pipeline();
  for (const key of keys) batch.hmget(key, ...fields);
  return read(batch, keys.length, (raw) => {
    if (!Array.isArray(raw) || raw.length !== fields.length) return undefined;
    return raw.every((one) => one === null) ? null : (raw as (string | null)[]);
  });
}

/** The value; null where there is none. Throws what Redis refused with: whoever can go on without an answer looks at `is`. */
export function valueIn<T>(reply: Reply<T>): T | null {
  if (reply.is === 'value') return reply.value;
  if (reply.is === 'missing') return null;
  throw reply.error;
}

/** Runs a pipeline or a transaction of writes. Throws the first refusal among its replies, which nobody else looks at. */
export async function write(batch: ChainableCommander): Promise<void> {
  for (const [error] of await replies(batch)) if (error !== null) throw error;
}

/** `toValue`: null for what is not there, undefined for what cannot be a reply. */
async function read<T>(
  batch: ChainableCommander,
  count: number,
  toValue: (raw: unknown) => T | null | undefined,
): Promise<Reply<T>[]> {
  if (count === 0) return [];
  const all = await replies(batch);
  if (all.length !== count) throw new UnexpectedReply(`${all.length} replies came to ${count} commands`);
  return all.map(([error, raw]): Reply<T> => {
    if (error !== null) return { is: isWrongType(error) ? 'wrong type' : 'error', error };
    const value = toValue(raw);
    if (value === undefined) return { is: 'error', error: new UnexpectedReply(`a reply of type ${typeof raw}`) };
    return value === null ? { is: 'missing' } : { is: 'value', value };
  });
}

async function replies(batch: ChainableCommander): Promise<[Error | null, unknown][]> {
  const all = await batch.exec();
  if (all === null) throw new UnexpectedReply('the transaction was not run');
  return all;
}

/** Some key holds what is no value of ours; told by scripts too. */
export function isWrongType(error: unknown): error is Error {
  return error instanceof Error && error.message.includes('WRONGTYPE');
}
