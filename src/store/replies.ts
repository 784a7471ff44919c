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

/** How many are asked for in one pipeline: whoever comes between does not wait for all. */
const AT_ONCE = 200;

/** All fields of each hash, in the order of the keys. Rejects when there is no connection to ask by. */
export function readHashes(redis: Redis, keys: string[]): Promise<Reply<Record<string, string>>[]> {
  return read(redis, keys, 'hgetall', [], (raw) => {
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
  return read(redis, keys, 'hmget', fields, (raw) => {
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
  redis: Redis,
  keys: string[],
  command: 'hgetall' | 'hmget',
  fields: readonly string[],
  toValue: (raw: unknown) => T | null | undefined,
): Promise<Reply<T>[]> {
  const all: [Error | null, unknown][] = [];
  for (let at = 0; at < keys.length; at += AT_ONCE) {
    all.push(...(await replies(redis.pipeline(keys.slice(at, at + AT_ONCE).map((key) => [command, key, ...fields])))));
  }
  if (all.length !== keys.length) throw new UnexpectedReply(`${all.length} replies came to ${keys.length} commands`);
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
