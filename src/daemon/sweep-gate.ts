import type { Store, StoredJob } from '../store/index.js';

interface Family {
  begun: StoredJob[];
  settled: boolean;
}

/**
 * Which jobs of a sweep may be let into their queues: as many as may run at a time, and one alone until the configuration that
 * holds for all of them is found.
 */
export class SweepGate {
  readonly #families: Map<string, Family>;

  private constructor(families: Map<string, Family>) {
    this.#families = families;
  }

  /** `pending`: jobs that are not in a queue yet. */
  static async open(store: Store, pending: StoredJob[]): Promise<SweepGate> {
    const ids = new Set(pending.flatMap(({ options }) => options.sweep?.sweep ?? []));
    if (ids.size === 0) return new SweepGate(new Map());
    const [live, settled] = await Promise.all([store.jobs.live(), store.sweeps.settled([...ids])]);
    const waits = new Set(pending.map(({ job }) => job));
    const begun = live.filter(({ job, state }) => state !== 'held' && !waits.has(job));
    const families = [...ids].map((id): [string, Family] => [
      id,
      { begun: begun.filter(({ options }) => options.sweep?.sweep === id), settled: settled.has(id) },
    ]);
    return new SweepGate(new Map(families));
  }

  /** Lets it through: null. Else what it waits for. */
  pass(job: StoredJob): string | null {
    const { sweep } = job.options;
    const family = sweep === undefined ? undefined : this.#families.get(sweep.sweep);
    if (sweep === undefined || family === undefined) return null;
    const { begun, settled } = family;
    const first = begun[0]?.job;
    if (first !== undefined && !settled) return `waits for ${first}, whose configuration is for all jobs of its sweep`;
    if (sweep.atOnce !== null && begun.length >= sweep.atOnce)
      return `waits for another job of its array to end: ${sweep.atOnce} may run at a time`;
    begun.push(job);
    return null;
  }
}
