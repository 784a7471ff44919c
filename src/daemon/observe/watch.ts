import type { LedgerReading } from '../../contract/launch.js';
import type { MemorySample } from '../../contract/verbs.js';
import type { MemoryTrace } from '../../store/index.js';
import { Ring } from './ring.js';

/** Where a daemon is killed, at most so much of a picture is lost: a part of it, or the first few looks. */
const LOST_PART = 1 / 30;
const LOST_LOOKS = 4;

/** One job that is looked at: what was seen of it, and whether that is worth writing down by now. */
export class Watch {
  readonly epoch: number;
  readonly #ring: Ring;
  readonly #refused = new Map<string, number>();
  #budget: number | null;
  #unsaved = 0;
  /** Something is not written down yet. */
  dirty = false;

  /** `begun`: what was written down of this try by an earlier daemon. */
  constructor(epoch: number, begun: MemoryTrace | null) {
    this.epoch = epoch;
    this.#ring = begun === null ? new Ring() : new Ring(undefined, begun);
    this.#budget = begun?.budget_bytes ?? null;
  }

  /** Returns whether it was kept by itself. */
  add(sample: MemorySample): boolean {
    this.dirty = true;
    const kept = this.#ring.add(sample);
    if (kept) this.#unsaved += 1;
    return kept;
  }

  get due(): boolean {
    return this.#unsaved >= Math.max(LOST_LOOKS, this.#ring.samples.length * LOST_PART);
  }

  /** What there is now; whoever takes it writes it down. */
  take(): MemoryTrace {
    this.dirty = false;
    this.#unsaved = 0;
    return this.trace;
  }

  get trace(): MemoryTrace {
    const { samples, every } = this.#ring;
    return { epoch: this.epoch, budget_bytes: this.#budget, every, samples };
  }

  /** What the job is held to, and how many allocations were refused since the last look. */
  learn(dir: string, ledger: LedgerReading): number {
    const budgets = ledger.devices.flatMap(({ budget_bytes }) => (budget_bytes ? [budget_bytes] : []));
    if (budgets.length > 0) this.#budget = Math.min(...budgets);
    const before = this.#refused.get(dir) ?? 0;
    this.#refused.set(dir, ledger.refused);
    return Math.max(0, ledger.refused - before);
  }
}
