import type { Redis } from 'ioredis';
import { readJson } from '../contract/fields.js';
import { type PairVerdict, pairVerdict } from '../contract/state.js';
import type { Keys } from './keys.js';

/** What runs under a name changes with its code: a verdict is measured again after so long. */
const SECONDS = 30 * 86_400;

/** What was measured of two jobs side by side on a model of GPU, by their names, in whichever order. */
export class Pairs {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  async get(model: string, names: readonly [string, string]): Promise<PairVerdict | null> {
    return readJson(pairVerdict, await this.redis.get(this.#key(model, names)));
  }

  async put(model: string, names: readonly [string, string], verdict: PairVerdict): Promise<void> {
    await this.redis.set(this.#key(model, names), JSON.stringify(verdict), 'EX', SECONDS);
  }

  #key(model: string, names: readonly [string, string]): string {
    const slug = model.toLowerCase().replace(/[^a-z0-9]+/g, '-');
    const [first, second] = [...names].sort() as [string, string];
    return this.keys.pair(slug, first, second);
  }
}
