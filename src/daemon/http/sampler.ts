import { basename } from 'node:path';
import { z } from 'zod';
import type { Log } from '../../common/log.js';
import type { LedgerReading, Run, Runtime } from '../../runtime/types.js';
import { hostName, type Store } from '../../store/index.js';
import { Ring, type Sample } from './ring.js';

/** Launches of a search may take less than a second. */
const LOOK_MS = 250;
const IDLE_MS = 2000;
/** Jobs whose history is kept, those that ended first go first. */
const JOBS_KEPT = 64;

const launches = z.array(z.object({ launch: z.number(), dir: z.string() }));

interface Watched {
  ring: Ring;
  budget: number | null;
  refused: Map<string, number>;
}

/**
 * Looks at the memory of the jobs that hold a lease on this host, by the ledgers in their launch folders: the jobs
 * themselves are not disturbed, and an earlier daemon's go on being seen.
 */
export class Sampler {
  readonly #store: Store;
  readonly #runtime: Runtime;
  readonly #log: Log;
  readonly #jobs = new Map<string, Watched>();
  readonly #runs = new Map<string, Run>();
  readonly #listeners = new Map<string, Set<(sample: Sample) => void>>();
  #timer: NodeJS.Timeout | null = null;
  #closed = false;
  /** Allocations that a budget or a driver refused, as far as they were seen. */
  refused = 0;

  constructor(store: Store, runtime: Runtime, log: Log) {
    this.#store = store;
    this.#runtime = runtime;
    this.#log = log;
  }

  start(): void {
    const again = async (): Promise<void> => {
      const busy = await this.#look().catch((error: unknown) => {
        this.#log.debug({ err: error }, 'ledgers could not be read');
        return false;
      });
      if (!this.#closed) this.#timer = setTimeout(again, busy ? LOOK_MS : IDLE_MS).unref();
    };
    void again();
  }

  close(): void {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  history(job: string): { samples: readonly Sample[]; budget: number | null } {
    const watched = this.#jobs.get(job);
    return { samples: watched?.ring.samples ?? [], budget: watched?.budget ?? null };
  }

  onSample(job: string, listener: (sample: Sample) => void): () => void {
    const listeners = this.#listeners.get(job) ?? new Set();
    this.#listeners.set(job, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) this.#listeners.delete(job);
    };
  }

  async #look(): Promise<boolean> {
    const here = hostName();
    const owners = (await this.#store.leases()).filter(({ host }) => host === here).map(({ owner }) => owner);
    if (owners.length === 0) {
      this.#runs.clear();
      return false;
    }
    const pipeline = this.#store.connection.redis.pipeline();
    for (const owner of owners) pipeline.hget(this.#store.keys.job(owner), 'launches');
    const replies = (await pipeline.exec()) ?? [];
    const dirs = new Set<string>();
    for (const [at, owner] of owners.entries()) {
      const last = readLaunches(replies[at]?.[1]).at(-1);
      if (last === undefined) continue;
      dirs.add(last.dir);
      await this.#read(owner, last.launch, last.dir);
    }
    for (const dir of this.#runs.keys()) if (!dirs.has(dir)) this.#runs.delete(dir);
    return true;
  }

  async #read(job: string, launch: number, dir: string): Promise<void> {
    // A folder of another job would be somebody's trick: records come from Redis
    if (!dir.endsWith(`/${job}/${basename(dir)}`)) return;
    const run = this.#runs.get(dir) ?? (await this.#runtime.adopt(dir));
    if (run === null) return;
    this.#runs.set(dir, run);
    const ledger = run.ledger();
    if (ledger === null) return;
    const watched = this.#watched(job);
    this.refused += newlyRefused(watched, dir, ledger);
    const held = ledger.devices.map(({ live_bytes, overhead_bytes }) => live_bytes + overhead_bytes);
    const budgets = ledger.devices.flatMap(({ budget_bytes }) => (budget_bytes ? [budget_bytes] : []));
    watched.budget = budgets.length === 0 ? watched.budget : Math.min(...budgets);
    const sample = { at: Date.now(), launch, bytes: Math.max(0, ...held) };
    if (!watched.ring.add(sample)) return;
    for (const listener of this.#listeners.get(job) ?? []) listener(sample);
  }

  #watched(job: string): Watched {
    const known = this.#jobs.get(job);
    const watched = known ?? { ring: new Ring(), budget: null, refused: new Map() };
    this.#jobs.delete(job); // the one looked at last stands last
    this.#jobs.set(job, watched);
    const [oldest] = this.#jobs.keys();
    if (this.#jobs.size > JOBS_KEPT && oldest !== undefined) this.#jobs.delete(oldest);
    return watched;
  }
}

function newlyRefused({ refused }: Watched, dir: string, ledger: LedgerReading): number {
  const before = refused.get(dir) ?? 0;
  refused.set(dir, ledger.refused);
  return Math.max(0, ledger.refused - before);
}

function readLaunches(value: unknown): z.infer<typeof launches> {
  try {
    return launches.parse(JSON.parse(String(value)));
  } catch {
    return [];
  }
}
