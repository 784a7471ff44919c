import type { Redis } from 'ioredis';
import { z } from 'zod';
import { answersTo } from '../common/names.js';
import { complaint, readJson } from '../contract/fields.js';
import { type Recommendation, recommendation as schema } from '../contract/recommendation.js';
import type { Keys } from './keys.js';
import { refuse } from './refused.js';
import { readHashes, valueIn } from './replies.js';
import { runScript } from './scripts.js';

export const EVENTS_KEPT = 10_000;

/** Recorded configurations: `{oomtune}:config:<key>` and the index `{oomtune}:configs`. */
export class RecommendationStore {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  /** Null when there is none, or what is there cannot be trusted. */
  async get(key: string): Promise<Recommendation | null> {
    return this.#read(key, await this.redis.hgetall(this.keys.config(key)));
  }

  /** Replaces what was recorded under the key. `job`: who found it, null in the foreground. */
  async put(recommendation: Recommendation, job: string | null): Promise<void> {
    const checked = schema.parse(recommendation);
    await runScript(
      this.redis,
      'config/put',
      [
        this.keys.config(checked.key),
        checked.knob === undefined ? this.keys.configs : this.keys.knobs,
        this.keys.events,
      ],
      [checked.key, Date.parse(checked.verified_at), EVENTS_KEPT, job ?? '', ...Object.entries(toHash(checked)).flat()],
    );
  }

  /** It did not hold in use: `knownBad` is a micro-batch that failed; the smallest ever seen is kept. */
  async demote(key: string, knownBad: number, job: string | null): Promise<void> {
    await runScript(
      this.redis,
      'config/demote',
      [this.keys.config(key), this.keys.events],
      [key, Math.max(1, Math.floor(knownBad)), EVENTS_KEPT, job ?? ''],
    );
  }

  /** All of batches, the latest first. */
  list(): Promise<Recommendation[]> {
    return this.#list(this.keys.configs);
  }

  /** All of knobs of the commands' own, the latest first; of what `named` finds where a name is given. */
  async knobs(name?: string): Promise<Recommendation[]> {
    const all = await this.#list(this.keys.knobs);
    return name === undefined ? all : named(all, name);
  }

  async #list(index: string): Promise<Recommendation[]> {
    const keys = await this.redis.zrevrange(index, 0, -1);
    const found: Recommendation[] = [];
    for (const [at, reply] of (await readHashes(this.redis, keys.map(this.keys.config))).entries()) {
      const key = keys[at] as string;
      if (reply.is === 'wrong type') {
        await refuse(this.redis, this.keys, this.keys.config(key), reply.error.message);
        continue;
      }
      const read = await this.#read(key, valueIn(reply) ?? {});
      if (read !== null) found.push(read);
    }
    return found;
  }

  /** Those of this key or name, or else of the automatic names that begin with it (a script's stem), the latest first. */
  async find(name: string): Promise<Recommendation[]> {
    return named(await this.list(), name);
  }

  async #read(key: string, hash: Record<string, string>): Promise<Recommendation | null> {
    if (Object.keys(hash).length === 0) return null;
    const parsed = schema.safeParse(fromHash(hash));
    if (parsed.success && parsed.data.key === key) return parsed.data;
    const why = parsed.success ? `its key says ${parsed.data.key}` : complaint(parsed.error);
    await refuse(this.redis, this.keys, this.keys.config(key), why);
    return null;
  }
}

function named(all: Recommendation[], name: string): Recommendation[] {
  const exactly = all.filter((one) => one.key === name || one.name === name);
  return exactly.length > 0 ? exactly : all.filter((one) => answersTo(one.name, name));
}

/** Every value as a string; null is an empty one. */
function toHash(recommendation: Recommendation): Record<string, string> {
  const text = (value: unknown): string => {
    if (value === null || value === undefined) return '';
    if (typeof value === 'boolean') return value ? '1' : '0';
    return typeof value === 'object' ? JSON.stringify(value) : String(value);
  };
  return Object.fromEntries(Object.entries(recommendation).map(([name, value]) => [name, text(value)]));
}

/** Parses a hash by the schema, which alone knows the types of the fields. */
function fromHash(hash: Record<string, string>): Record<string, unknown> {
  const record: Record<string, unknown> = { ...hash };
  for (const [name, field] of Object.entries(schema.shape)) {
    const takes = (value: unknown): boolean => field.safeParse(value).success;
    const text = hash[name];
    if (text) record[name] = readAs(field, text);
    else if (takes(null) && (text === '' || !takes(undefined))) record[name] = null;
    else if (text === undefined || !takes('')) delete record[name];
  }
  return record;
}

function readAs(field: z.ZodType, text: string): unknown {
  let inner = field;
  while (inner instanceof z.ZodOptional || inner instanceof z.ZodNullable) inner = inner.unwrap() as z.ZodType;
  const { type } = inner.def;
  if (type === 'boolean') return text === '1' ? true : text === '0' ? false : text;
  if (type === 'number' || type === 'literal') return /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text) ? Number(text) : text;
  return type === 'object' || type === 'array' ? readJson(z.unknown(), text) : text;
}
