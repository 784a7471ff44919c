import type { Pace } from './pace.js';
import { judge, type Round, type Verdict } from './verdict.js';

/** Who runs in a part of a round: both, or one while the other stands still. */
const PARTS = ['both', 0, 1] as const;
type Part = (typeof PARTS)[number];

/** This part of a window is left out: kernels that were queued end, caches fill. */
const SETTLING = 0.25;
/** After so many windows without enough steps there is nothing to measure. */
const LONGEST = 15;

/** What is to be done now: which of the two stands still (null: neither), and the verdict once there is one. */
export interface Step {
  still: 0 | 1 | null;
  verdict: Verdict | 'unmeasured' | null;
}

/**
 * Measures two jobs in rounds: side by side, then each alone while the other stands still, and the next round in reverse, so
 * that what changes slowly (clocks, other load, phases of a training) weighs on all parts alike. Pure: time is given to it.
 */
export class Measurement {
  readonly rounds: Round[] = [];
  #part = 0;
  #since: number;
  #rates = new Map<Part, [number | null, number | null]>();

  /** `windowMs`: how long a part lasts at least. */
  constructor(
    private readonly windowMs: number,
    now: number,
  ) {
    this.#since = now;
  }

  /** Begins the part again, as after a pause that somebody else asked for. */
  again(now: number): void {
    this.#since = now;
  }

  look(now: number, paces: readonly [Pace, Pace]): Step {
    const runs = this.#order[this.#part] as Part;
    const lasted = now - this.#since;
    const from = this.#since + SETTLING * this.windowMs;
    const rates = [0, 1].map((at) => (runs === 'both' || runs === at ? (paces[at] as Pace).since(from) : null));
    const enough = rates.every((rate, at) => rate !== null || !(runs === 'both' || runs === at));
    if (lasted >= this.windowMs && enough) this.#next(now, runs, rates as [number | null, number | null]);
    else if (lasted >= LONGEST * this.windowMs) return { still: null, verdict: 'unmeasured' };
    const verdict = this.#part === 0 ? judge(this.rounds) : null;
    const after = this.#order[this.#part] as Part;
    return { still: verdict !== null || after === 'both' ? null : after === 0 ? 1 : 0, verdict };
  }

  get #order(): readonly Part[] {
    return this.rounds.length % 2 === 0 ? PARTS : [...PARTS].reverse();
  }

  #next(now: number, runs: Part, rates: [number | null, number | null]): void {
    this.#rates.set(runs, rates);
    this.#part += 1;
    this.#since = now;
    if (this.#part < PARTS.length) return;
    const rate = (part: Part, at: 0 | 1): number => this.#rates.get(part)?.[at] as number;
    this.rounds.push({ alone: [rate(0, 0), rate(1, 1)], beside: [rate('both', 0), rate('both', 1)] });
    this.#part = 0;
    this.#rates = new Map();
  }
}
