import type { LedgerReading } from '../../contract/launch.js';
import type { MemorySample } from '../../contract/verbs.js';
import type { MemoryTrace } from '../../store/index.js';

/** At most `capacity` samples of a job's whole life: when full, every second one goes, and the interval doubles. */
export class Ring {
  readonly #capacity: number;
  #samples: MemorySample[];
  #every: number;
  #skipped: number;

  /** `begun`: samples of an earlier daemon. */
  constructor(capacity = 600, begun: { samples: readonly MemorySample[]; every: number } = { samples: [], every: 1 }) {
    this.#capacity = capacity;
    this.#samples = [...begun.samples];
    this.#every = begun.every;
    this.#skipped = begun.every; // time has passed: the next one stands for itself
  }

  /** Merges maxima when it thins out, so that no peak vanishes. Returns whether this sample was kept as its own. */
  add(sample: MemorySample): boolean {
    const last = this.#samples.at(-1);
    this.#skipped += 1;
    if (last !== undefined && last.launch === sample.launch && this.#skipped < this.#every) {
      if (sample.bytes > last.bytes) this.#samples[this.#samples.length - 1] = { ...last, bytes: sample.bytes };
      return false;
    }
    this.#skipped = 0;
    this.#samples.push(sample);
    if (this.#samples.length > this.#capacity) this.#thin();
    return true;
  }

  get samples(): readonly MemorySample[] {
    return this.#samples;
  }

  get every(): number {
    return this.#every;
  }

  #thin(): void {
    this.#every *= 2;
    const thinned: MemorySample[] = [];
    for (let at = 0; at < this.#samples.length; at += 2) {
      const [one, two] = [this.#samples[at] as MemorySample, this.#samples[at + 1]];
      if (two === undefined || two.launch !== one.launch) thinned.push(one, ...(two === undefined ? [] : [two]));
      else thinned.push({ ...one, bytes: Math.max(one.bytes, two.bytes) });
    }
    // If nearly every sample is a launch of its own, few can be merged, so the oldest go
    this.#samples = thinned.slice(-this.#capacity);
  }
}

/** The most of a picture that a killed daemon may lose. */
const LOST_PART = 1 / 30;
const LOST_LOOKS = 4;

/** The samples of one job, and whether they should be saved now. */
export class Watch {
  readonly #ring: Ring;
  readonly #refused = new Map<string, number>();
  #budget: number | null;
  #unsaved = 0;
  /** Has unsaved samples. */
  dirty = false;

  /** `begun`: an earlier daemon's samples of this try. */
  constructor(
    readonly epoch: number,
    begun: MemoryTrace | null,
  ) {
    this.#ring = begun === null ? new Ring() : new Ring(undefined, begun);
    this.#budget = begun?.budget_bytes ?? null;
  }

  add(sample: MemorySample): boolean {
    this.dirty = true;
    const kept = this.#ring.add(sample);
    if (kept) this.#unsaved += 1;
    return kept;
  }

  get due(): boolean {
    return this.#unsaved >= Math.max(LOST_LOOKS, this.#ring.samples.length * LOST_PART);
  }

  /** The samples, for the caller to save. */
  take(): MemoryTrace {
    this.dirty = false;
    this.#unsaved = 0;
    return this.trace;
  }

  get trace(): MemoryTrace {
    const { samples, every } = this.#ring;
    return { epoch: this.epoch, budget_bytes: this.#budget, every, samples };
  }

  /** Notes the budget; returns how many allocations were refused since the last look. */
  learn(dir: string, ledger: LedgerReading): number {
    const budgets = ledger.devices.flatMap(({ budget_bytes }) => (budget_bytes ? [budget_bytes] : []));
    if (budgets.length > 0) this.#budget = Math.min(...budgets);
    const before = this.#refused.get(dir) ?? 0;
    this.#refused.set(dir, ledger.refused);
    return Math.max(0, ledger.refused - before);
  }
}
