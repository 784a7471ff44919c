import type { ChainableCommander, Redis } from 'ioredis';

/** A flat reply (field, value, field, value) as a record. */
export function pairs(fields: string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let at = 0; at + 1 < fields.length; at += 2) record[fields[at] as string] = fields[at + 1] as string;
  return record;
}

/** Redis's reply to one of several commands. Only a `value` may decide to end, drop or start something, never an `error`. */
export type Reply<T> =
  | { is: 'value'; value: T }
  | { is: 'missing' }
  | { is: 'wrong type'; error: Error }
  | { is: 'error'; error: Error };

/** A reply of the wrong type. */
class UnexpectedReply extends Error {}

/** Commands in one pipeline, so that other clients wait less. */
const AT_ONCE = 200;

/** All fields of each hash, in the order of the keys. Rejects without a connection. */
export function readHashes(redis: Redis, keys: string[]): Promise<Reply<Record<string, string>>[]> {
  return read(redis, keys, 'hgetall', [], (raw) => {
    if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) return undefined;
    return Object.keys(raw).length === 0 ? null : (raw as Record<string, string>);
  });
}

/** These fields of each hash; null: that field is missing. `missing`: all are. */
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

/** The value; null: none. Throws Redis's error; use `is` to go on without an answer. */
export function valueIn<T>(reply: Reply<T>): T | null {
  if (reply.is === 'value') return reply.value;
  if (reply.is === 'missing') return null;
  throw reply.error;
}

/** Runs a pipeline or transaction of writes. Throws the first error among its replies. */
export async function write(batch: ChainableCommander): Promise<void> {
  for (const [error] of await replies(batch)) if (error !== null) throw error;
}

/** `toValue` gives null for a missing value, undefined for an impossible reply. */
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

/** A key holds a value of another type; scripts report it, too. */
export function isWrongType(error: unknown): error is Error {
  return error instanceof Error && error.message.includes('WRONGTYPE');
}
