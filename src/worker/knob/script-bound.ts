import type { Observation } from '../../contract/measurement.js';
import { closingSize, isCloseEnough, type Sizes, valuesBetween } from '../../tuner/index.js';
import type { KnobWish } from '../types.js';

/** The largest value that is tried where nobody said one. */
export const LARGEST = 2 ** 20;
/** A value that a script takes is often a multiple of one of these, the largest first. */
const MULTIPLES = [64, 32, 16, 8];

/**
 * Where the values end that the script itself can run with: it crashes beyond (a table of 512 positions), or at what is no multiple of
 * something. Looks for that place in the steps in which such bounds are made: powers of two, then a little more.
 */
export class ScriptBound {
  /** The smallest value that the script crashed with, larger than one that ran or the smallest that was to be tried. */
  crash: Observation | null = null;
  #multipleOf: number | null;
  /** A multiple of which is tried in the place of a value that crashed. */
  #guessed: { crash: Observation; multiple: number } | null = null;
  /** Crashes of values that are no multiples of what the script wants. */
  readonly #uneven: Observation[] = [];

  constructor(private readonly wish: KnobWish) {
    this.#multipleOf = wish.multipleOf;
  }

  /** Null: numbers as round as the precision of the answer allows. */
  get multipleOf(): number | null {
    return this.#multipleOf;
  }

  /** The largest value that is left; null: nothing bounds them. */
  most(seen: readonly Observation[]): number | null {
    if (this.crash === null) return null;
    const top = largestFit(seen);
    return this.ends(top) ? top : (this.#sizes?.down(this.crash.micro_batch - 1) ?? this.crash.micro_batch - 1);
  }

  get #sizes(): Sizes | null {
    const { min, max } = this.wish;
    return valuesBetween(min ?? 1, max ?? LARGEST, this.#multipleOf);
  }

  isCrash(observation: Observation): boolean {
    if (observation.outcome !== 'user_error') return false;
    const { micro_batch: value } = observation;
    return value >= (this.crash?.micro_batch ?? Infinity) || this.#uneven.some((one) => one.micro_batch === value);
  }

  /** Takes a failure; `seen`: all else. */
  learn(failed: Observation, seen: readonly Observation[]): void {
    if (failed.outcome !== 'user_error') return;
    // Nothing smaller is left to be tried: the command fails, whatever the value.
    if (failed.micro_batch <= (this.wish.min ?? 1)) return;
    if (this.crash !== null && failed.micro_batch >= this.crash.micro_batch) return;
    // Where a multiple failed as well, that is not what the script wants.
    const before = this.crash?.micro_batch ?? null;
    this.crash = failed;
    const top = largestFit(seen);
    const multiple =
      this.#multipleOf === null
        ? MULTIPLES.find((one) => failed.micro_batch % one !== 0 && (before === null || before % one !== 0))
        : undefined;
    const round = multiple === undefined ? 0 : failed.micro_batch - (failed.micro_batch % multiple);
    this.#guessed = multiple !== undefined && round > top && top > 0 ? { crash: failed, multiple } : null;
  }

  /** The value that tells more of where the script ends; null: all is known of it, or memory ends before. */
  next(seen: readonly Observation[]): { size: number; why: string } | null {
    if (this.crash === null) return null;
    const top = largestFit(seen);
    if (top === 0) return null;
    if (this.#guessed !== null) {
      const { crash, multiple } = this.#guessed;
      const size = crash.micro_batch - (crash.micro_batch % multiple);
      if (top < size)
        return { size, why: `${crash.micro_batch} fails for another reason than memory: a rounder number?` };
      this.#uneven.push(crash);
      this.#multipleOf = multiple;
      this.#guessed = null;
      this.crash = null;
      return null;
    }
    const end = this.crash.micro_batch;
    if (seen.some((one) => one.outcome === 'device_oom' && one.micro_batch > top && one.micro_batch < end)) return null;
    const sizes = this.#sizes;
    if (sizes === null || this.ends(top)) return null;
    const why = `${end} fails for another reason than memory: where does that begin?`;
    const size = between(top, end, sizes);
    return size === null ? null : { size, why };
  }

  /** Whether `max` is where the script ends. */
  ends(max: number): boolean {
    if (this.crash === null || max === 0) return false;
    const sizes = this.#sizes;
    return sizes !== null && isCloseEnough(max, this.crash.micro_batch, sizes);
  }

  get note(): string | null {
    const [first] = this.#uneven;
    return first === undefined
      ? null
      : `${first.micro_batch} failed (${first.evidence ?? first.outcome}) and multiples of ${this.#multipleOf} do not: only those are tried from here on. --knob-multiple-of N says what the script wants.`;
  }
}

/** The middle one of the powers of two between, else a little more than what runs, else the middle. */
function between(top: number, end: number, sizes: Sizes): number | null {
  const powers: number[] = [];
  for (let power = 1; power < end; power *= 2) if (power > top && sizes.down(power) === power) powers.push(power);
  const middle = powers[Math.floor(powers.length / 2)];
  if (middle !== undefined) return middle;
  const isPower = Number.isInteger(Math.log2(top));
  const aim = isPower ? closingSize(top) : (top + end) / 2;
  const size = [sizes.down(aim), sizes.up(top + 1)].find((one) => one !== null && one > top && one < end);
  return size ?? null;
}

function largestFit(seen: readonly Observation[]): number {
  return Math.max(0, ...seen.filter((one) => one.outcome === 'fit').map((one) => one.micro_batch));
}
