import { OomtuneError } from '../common/errors.js';
import { refusal } from '../common/refusal.js';
import { unlessAborted } from '../common/within.js';
import type { Recommendation } from '../contract/recommendation.js';
import { isRefusal, retry } from '../store/retry.js';
import type { Records, WorkRecommendations } from '../worker/types.js';

/** Refused for so long, the work goes on without: somebody waits for it. */
const MOST_MS = 60_000;

interface Parts {
  all: WorkRecommendations;
  signal: AbortSignal;
  onRefused: (error: Error) => void;
  note: (text: string) => void;
}

/**
 * What is recorded, for a command in the foreground. Once it has its devices, an error that Redis answers with is waited out as
 * an outage is, but not for ever: then it goes on as if nothing were recorded, and a note says so. Before that it fails at once.
 */
export class ForegroundRecommendations implements WorkRecommendations {
  #begun = false;
  /** Redis was waited for in vain: until it takes something it is asked only once each time. */
  #gaveUp = false;

  constructor(
    private readonly parts: Parts,
    private readonly mostMs = MOST_MS,
  ) {}

  async get(key: string): Promise<Recommendation | null> {
    const lost = `What is recorded as ${key} cannot be read, and it goes on as if nothing were`;
    return this.#withstand(() => this.parts.all.get(key), null, lost);
  }

  async put(found: Recommendation, job: string | null): Promise<void> {
    const lost = `What was found is not recorded as ${found.key}`;
    await this.#withstand(() => this.parts.all.put(found, job), undefined, lost);
  }

  async demote(key: string, knownBad: number, job: string | null): Promise<void> {
    const lost = `That ${knownBad} is too large is not recorded in ${key}`;
    await this.#withstand(() => this.parts.all.demote(key, knownBad, job), undefined, lost);
  }

  /** The same without patience: a refusal is thrown at once. */
  get atOnce(): WorkRecommendations {
    const { all } = this.parts;
    return {
      get: (key) => this.#now(() => all.get(key)),
      put: (found, job) => this.#now(() => all.put(found, job)),
      demote: (key, knownBad, job) => this.#now(() => all.demote(key, knownBad, job)),
    };
  }

  /** The leases of the command: the first that is granted is its beginning. */
  leasing(leasing: Records['leasing']): Records['leasing'] {
    return {
      acquire: async (request) => {
        const lease = await leasing.acquire(request);
        this.#begun = true;
        return lease;
      },
    };
  }

  async #withstand<T>(task: () => Promise<T>, without: T, lost: string): Promise<T> {
    if (!this.#begun) return this.#now(task);
    const { signal, onRefused, note } = this.parts;
    const mostMs = this.#gaveUp ? 0 : this.mostMs;
    try {
      const result = await retry(() => this.#now(task), { signal, onRefused, mostMs });
      this.#gaveUp = false;
      return result;
    } catch (error) {
      if (signal.aborted || !isRefusal(error)) throw error;
      this.#gaveUp = true;
      const known = error instanceof OomtuneError ? error : refusal(error, null);
      note(`${lost}: ${known === null ? error.message : `${known.message} ${known.remedy}`}`);
      return without;
    }
  }

  /** Who interrupts does not wait for a Redis that is away. */
  #now<T>(task: () => Promise<T>): Promise<T> {
    return unlessAborted(this.parts.signal, task);
  }
}
