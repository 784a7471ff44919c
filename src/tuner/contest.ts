import type { Observation } from '../contract/measurement.js';
import { type Rung, sameRung } from '../contract/rung.js';
import { rate } from './recommend.js';
import type { RungSpeed } from './types.js';

/** The most rounds of a comparison, and the number after which a clear lead ends it. */
const ROUNDS = 5;
const FIRST = 3;
/** A lead is clear if it is this many times the spread. */
const CLEAR = 2;
/** A rung that is faster by less than this is not worth turning a knob on. */
const LEAST_LEAD = 0.01;
/** Compared across launches, each measured once, a rung has to be ahead by this much of one that changes less. */
const ACROSS = 0.1;
export const ACROSS_LAUNCHES = `The rungs were compared across launches, each measured once: one had to be ${100 * ACROSS} % faster to be preferred to one that changes less.`;
/** A rung that the survey and the first turn both show at less than this part of the best speed has no part in the turns after it. */
const HOPELESS = 0.5;

/** A rung and the size at which its survey was fastest, with the samples/s on one device that it showed. */
export interface Contender {
  index: number;
  rung: Rung;
  size: number;
  rate: number;
}

/**
 * Compares the speeds of rungs side by side: one after the other in one process, for several rounds, so that changes with time
 * and from process to process affect all of them. A rung is preferred to one that changes less if the median of the ratio of their speeds
 * in the rounds is above one by more than these ratios spread. Of rungs that are equally fast it picks another than the one that
 * changes least in fewer than 3 of 100 comparisons (test/tuner/contest.test.ts).
 */
export class Contest {
  readonly #contenders: readonly Contender[];
  /** Speeds by contender, a number a round. */
  readonly #rates: number[][];
  readonly #out = new Set<number>();
  readonly #most: number;
  #told = 0;
  #over = false;

  /** `surveyed`: in the ladder's order. `together`: one process can show all of them. */
  constructor(
    surveyed: readonly Contender[],
    readonly together: boolean,
  ) {
    this.#contenders = surveyed.filter((one) => one.rate > 0);
    this.#rates = this.#contenders.map(() => []);
    this.#most = (ROUNDS + 1) * this.#contenders.length;
  }

  /** What to measure next; null: the contest is decided. */
  next(): Contender | null {
    if (!this.together || this.#over || this.#told >= this.#most) return null;
    const left = this.#left();
    const rounds = Math.min(...left.map((k) => this.#rounds(k)));
    const whole = left.every((k) => this.#rounds(k) === rounds);
    if (left.length < 2 || rounds >= ROUNDS || (whole && rounds >= FIRST && this.#isClear(left))) return null;
    return this.#contenders[left.find((k) => this.#rounds(k) === rounds) as number] ?? null;
  }

  /** Takes the outcome. A rung that fails at its size this time is out. */
  tell(o: Observation): void {
    this.#told += 1;
    const at = this.#contenders.findIndex((one) => sameRung(one.rung, o.rung) && one.size === o.micro_batch);
    if (at < 0) return;
    if (o.outcome === 'fit' && rate(o) > 0) this.#rates[at]?.push(rate(o));
    else this.#out.add(at);
  }

  /** Decides on the measurements so far: no launch is left. */
  end(): void {
    this.#over = true;
  }

  /** Indexes of the rungs: the one that is chosen, then the others by speed. */
  order(): number[] {
    const left = this.#left();
    const chosen = this.#decide(left, 1);
    const rest = left.filter((k) => k !== chosen).sort((a, b) => this.#speed(b) - this.#speed(a));
    return [...(chosen === null ? [] : [chosen]), ...rest].map((k) => (this.#contenders[k] as Contender).index);
  }

  /** All that fitted, in the ladder's order, those that had no part in it as their survey showed them; `devices` train as many samples each. */
  speeds(devices: number): RungSpeed[] {
    return this.#contenders.flatMap(({ rung, size }, k) => {
      const rates = this.#rates[k] as number[];
      const spread = rates.length < 2 ? null : (devices * (Math.max(...rates) - Math.min(...rates))) / 2;
      const speed = { samples_per_s: devices * this.#speed(k), spread, rounds: Math.max(1, rates.length) };
      return this.#out.has(k) ? [] : [{ rung, micro_batch: size, ...speed }];
    });
  }

  #left(): number[] {
    const able = [...this.#contenders.keys()].filter((k) => !this.#out.has(k));
    return able.filter((k) => !this.#isHopeless(k, able));
  }

  /** One slow measurement may be the machine's fault; two are not. */
  #isHopeless(k: number, able: readonly number[]): boolean {
    const isSlow = (rateOf: (k: number) => number): boolean => rateOf(k) < HOPELESS * Math.max(...able.map(rateOf));
    const surveyed = (k: number): number => (this.#contenders[k] as Contender).rate;
    const first = (k: number): number => this.#rates[k]?.[0] ?? 0;
    return able.every((k) => this.#rounds(k) > 0) && isSlow(surveyed) && isSlow(first);
  }

  #rounds(k: number): number {
    return this.#rates[k]?.length ?? 0;
  }

  #speed(k: number): number {
    return this.#rounds(k) > 0 ? median(this.#rates[k] as number[]) : (this.#contenders[k] as Contender).rate;
  }

  /** In the ladder's order, each against the best so far. */
  #decide(left: readonly number[], times: number): number | null {
    return left.reduce<number | null>((best, k) => (best === null || this.#isAhead(k, best, times) ? k : best), null);
  }

  #isClear(left: readonly number[]): boolean {
    const chosen = this.#decide(left, CLEAR) as number;
    return left.every((k) => k === chosen || this.#isAhead(chosen, k, CLEAR));
  }

  #isAhead(one: number, other: number, times: number): boolean {
    const rounds = Math.min(this.#rounds(one), this.#rounds(other));
    if (rounds < FIRST) return this.#speed(one) > (1 + ACROSS) * this.#speed(other);
    const ratios = Array.from({ length: rounds }, (_, round) =>
      Math.log((this.#rates[one]?.[round] as number) / (this.#rates[other]?.[round] as number)),
    );
    const lead = median(ratios);
    return lead > LEAST_LEAD && lead > times * (Math.max(...ratios) - Math.min(...ratios));
  }
}

/** The median of at least one value. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] as number;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] as number) + upper) / 2;
}
