import { basename } from 'node:path';
import { z } from 'zod';
import type { Log } from '../../common/log.js';
import { within } from '../../common/within.js';
import { readJson } from '../../contract/fields.js';
import { jobRecord } from '../../contract/job.js';
import type { MemorySample } from '../../contract/verbs.js';
import type { Run, Runtime } from '../../runtime/types.js';
import { type Follower, hostName, type MemoryTrace, type Store } from '../../store/index.js';
import { Watch } from './watch.js';

/** A launch of a search may take less than a second. */
const LOOK_MS = 250;
const IDLE_MS = 2000;
/** Ended jobs kept in memory; Redis has the others. */
const JOBS_KEPT = 64;
const LAST_WORDS_MS = 2000;

const launches = z.array(jobRecord.shape.launches.element.pick({ launch: true, dir: true }));

/** `full`: all samples since the start; else the new ones. */
export type MemoryListener = (samples: readonly MemorySample[], full: boolean) => void;

/** Samples the memory of this host's jobs from the ledgers in their launch folders, which disturbs no job. Redis keeps it. */
export class Sampler {
  readonly #jobs = new Map<string, Watch>();
  readonly #runs = new Map<string, Run>();
  readonly #listeners = new Map<string, Set<MemoryListener>>();
  #timer: NodeJS.Timeout | null = null;
  #closed = false;
  #woken = false;
  /** Refused allocations, as far as they were seen. */
  refused = 0;

  constructor(
    private readonly store: Store,
    private readonly runtime: Runtime,
    private readonly log: Log,
  ) {}

  start(): void {
    void this.#again();
  }

  /** A lease was taken: looks at once, as a search's first launch may be over in two seconds. */
  wake(): void {
    this.#woken = true;
    if (this.#timer === null || this.#closed) return; // it is looking, and will again
    clearTimeout(this.#timer);
    void this.#again();
  }

  /** Saves the last samples, unless Redis refuses. */
  async close(): Promise<void> {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    const saving = Promise.all([...this.#jobs].map(([job, watch]) => this.#save(job, watch)));
    await within(LAST_WORDS_MS, null, () => saving).catch((error: unknown) =>
      this.log.debug({ err: error }, 'the memory of jobs over time could not be written'),
    );
  }

  /** This daemon's samples; null: none, but Redis may have some. */
  history(job: string): MemoryTrace | null {
    return this.#jobs.get(job)?.trace ?? null;
  }

  onSample(job: string, listener: MemoryListener): () => void {
    const listeners = this.#listeners.get(job) ?? new Set();
    this.#listeners.set(job, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) this.#listeners.delete(job);
    };
  }

  async #again(): Promise<void> {
    this.#timer = null;
    this.#woken = false;
    const busy = await this.#look().catch((error: unknown) => {
      this.log.debug({ err: error }, 'ledgers could not be read');
      return false;
    });
    if (!this.#closed)
      this.#timer = setTimeout(() => void this.#again(), busy || this.#woken ? LOOK_MS : IDLE_MS).unref();
  }

  async #look(): Promise<boolean> {
    const here = hostName();
    const owners = (await this.store.leasing.list()).filter(({ host }) => host === here).map(({ owner }) => owner);
    const records = await this.store.jobs.fields(owners, ['launches', 'epoch']);
    const dirs = new Set<string>();
    for (const [at, values] of records.entries()) {
      const owner = owners[at] as string;
      const [written, epoch] = values ?? [];
      const last = readJson(launches, written)?.at(-1);
      if (last === undefined) continue;
      dirs.add(last.dir);
      await this.#read(owner, Number(epoch ?? 1), last.launch, last.dir);
    }
    for (const dir of this.#runs.keys()) if (!dirs.has(dir)) this.#runs.delete(dir);
    await this.#tidy(new Set(owners));
    return owners.length > 0;
  }

  /** Saves ended jobs, and drops the oldest from memory. */
  async #tidy(known: Set<string>): Promise<void> {
    for (const [job, watch] of this.#jobs) {
      if (known.has(job)) continue;
      await this.#save(job, watch);
      if (this.#jobs.size > JOBS_KEPT) this.#jobs.delete(job);
    }
  }

  async #read(job: string, epoch: number, launch: number, dir: string): Promise<void> {
    // Records come from Redis: a folder of another job would be a trick
    if (!dir.endsWith(`/${job}/${basename(dir)}`)) return;
    const run = this.#runs.get(dir) ?? (await this.runtime.adopt(dir));
    if (run === null) return;
    this.#runs.set(dir, run);
    const ledger = run.ledger();
    if (ledger === null) return;
    const watch = await this.#watch(job, epoch);
    this.refused += watch.learn(dir, ledger);
    const used = ledger.devices.map(({ live_bytes, overhead_bytes }) => live_bytes + overhead_bytes);
    const sample = { at: Date.now(), launch, bytes: Math.max(0, ...used) };
    if (watch.add(sample)) this.#tell(job, [sample], false);
    if (watch.due) await this.#save(job, watch);
  }

  async #watch(job: string, epoch: number): Promise<Watch> {
    const known = this.#jobs.get(job);
    this.#jobs.delete(job); // the one looked at last stands last
    const begins = known?.epoch !== epoch;
    const watch = begins ? new Watch(epoch, await this.store.memory.get(job)) : known;
    this.#jobs.set(job, watch);
    if (begins) this.#tell(job, watch.trace.samples, true);
    return watch;
  }

  async #save(job: string, watch: Watch): Promise<void> {
    if (watch.dirty) await this.store.memory.put(job, watch.take());
  }

  #tell(job: string, samples: readonly MemorySample[], full: boolean): void {
    for (const listener of this.#listeners.get(job) ?? []) listener(samples, full);
  }
}

/** Observes jobs, also while nobody looks: events, and memory over time. */
export class Observer {
  readonly follower: Follower;
  readonly sampler: Sampler;

  constructor(store: Store, runtime: Runtime, log: Log) {
    this.follower = store.follower(log);
    this.sampler = new Sampler(store, runtime, log);
  }

  /** Listeners first get the last `past` events, at least one. */
  async start(past = 1): Promise<void> {
    await this.follower.start(past);
    this.follower.onEvent(({ type }) => type === 'lease' && this.sampler.wake());
    this.sampler.start();
  }

  async close(): Promise<void> {
    this.follower.close();
    await this.sampler.close();
  }
}
