import { type Block, CachingAllocator, OutOfMemory } from './caching-allocator.js';

/**
 * What a script allocates and frees up to the end of some optimizer steps at one micro-batch, in order. In `prelude` (until the first
 * step) and `events`: n >= 0 allocates n bytes; n < 0 frees allocation -n - 1, counted over both.
 */
export interface Trace {
  micro_batch: number;
  prelude: number[];
  events: number[];
  /** Bytes of each allocation that an earlier size of the same process made, and that was in use to the end. */
  kept?: number[];
  /** Events at the start of the first step, and at the end of each. */
  steps: number[];
}

/** Where the steps are replayed. */
export interface Place {
  /** Bytes that the allocator may take from the device. */
  limit: number;
  expandable: boolean;
  /** Sizes that libraries allocate once and keep (cuBLAS). */
  workspaces: readonly number[];
}

export interface Replayed {
  fits: boolean;
  reserved: number;
  allocated: number;
}

/** Sizes that differ by less from a line are on it. */
const STRAIGHT = 1024;

/** Steps at any micro-batch, by the sizes of each allocation at those that were traced. */
export class StepReplay {
  readonly #traces: Trace[];
  /** The events of one size, of which all others have the same allocations. */
  readonly #order: number[];
  /** For each allocation its size at the traced micro-batches. */
  readonly #sizes: number[][];

  /** `traces`: from the smallest size to the largest. Null: steps of different sizes make different allocations. */
  static of(traces: readonly Trace[]): StepReplay | null {
    // More steps than another has: the first still had a batch of the size before.
    const even = new Set(traces.map(({ steps }) => steps.length)).size === 1;
    return (
      (even ? StepReplay.#aligned(traces, traces.map(allSteps)) : null) ??
      StepReplay.#aligned(traces, traces.map(lastSteps))
    );
  }

  static #aligned(traces: readonly Trace[], orders: number[][]): StepReplay | null {
    const sizes = orders.map((events) => events.filter((event) => event >= 0));
    const [first] = sizes;
    if (first === undefined || first.length === 0 || sizes.some((one) => one.length !== first.length)) return null;
    const shrunk = first.filter((_, at) =>
      sizes.some((one, of) => of > 0 && at in one && less(one, sizes[of - 1], at)),
    );
    if (shrunk.length > MOST_SHRUNK * first.length) return null;
    return new StepReplay([...traces], orders[orders.length - 1] as number[], sizes);
  }

  private constructor(traces: Trace[], order: number[], sizes: number[][]) {
    this.#traces = traces;
    this.#order = order;
    this.#sizes = (sizes[0] as number[]).map((_, at) => sizes.map((one) => one[at] as number));
  }

  at(microBatch: number, place: Place): Replayed {
    const allocator = new CachingAllocator(place.limit, place.expandable);
    const blocks: (Block | null)[] = [];
    const weights = this.#weights(microBatch);
    let fits = true;
    try {
      for (const size of [...place.workspaces, ...(this.#traces.at(-1)?.kept ?? [])]) allocator.allocate(size);
      for (const event of this.#order) {
        if (event >= 0) blocks.push(allocator.allocate(this.#size(blocks.length, weights)));
        else {
          const block = blocks[-event - 1];
          if (block) allocator.free(block);
          blocks[-event - 1] = null;
        }
      }
    } catch (error) {
      if (!(error instanceof OutOfMemory)) throw error;
      fits = false;
    }
    return { fits, reserved: allocator.peakReserved, allocated: allocator.peakAllocated };
  }

  /** The largest micro-batch up to `most` that fits; 0: not even one does. */
  largest(place: Place, most: number): number {
    const fits = (size: number): boolean => this.at(size, place).fits;
    if (!fits(1)) return 0;
    let low = 1;
    let high = 2;
    while (high <= most && fits(high)) {
      low = high;
      high *= 2;
    }
    high = Math.min(high, most + 1);
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (fits(middle)) low = middle;
      else high = middle;
    }
    return low;
  }

  /** Bytes of an allocation: on the line through the last two sizes, or on the parabola through three where they bend. */
  #size(at: number, { line, curve }: Weights): number {
    const sizes = this.#sizes[at] as number[];
    const last = sizes.length - 1;
    const [before, end] = [sizes[last - 1] ?? (sizes[last] as number), sizes[last] as number];
    if (before === end) return end;
    if (curve !== null) {
      const first = sizes[last - 2] as number;
      const [one, two, three] = this.#last(3) as [number, number, number];
      const onLine = before + ((end - before) / (three - two)) * (one - two);
      if (Math.abs(first - onLine) > STRAIGHT)
        return Math.max(0, Math.round(first * curve[0] + before * curve[1] + end * curve[2]));
    }
    return Math.max(0, Math.round(before + (end - before) * line));
  }

  #last(count: number): number[] {
    return this.#traces.slice(-count).map((trace) => trace.micro_batch);
  }

  #weights(size: number): Weights {
    const [one, two] = this.#last(2);
    const line = one === undefined || two === undefined ? 1 : (size - one) / (two - one);
    const [a, b, c] = this.#last(3);
    if (a === undefined || b === undefined || c === undefined) return { line, curve: null };
    return {
      line,
      curve: [
        ((size - b) * (size - c)) / ((a - b) * (a - c)),
        ((size - a) * (size - c)) / ((b - a) * (b - c)),
        ((size - a) * (size - b)) / ((c - a) * (c - b)),
      ],
    };
  }
}

/** Steps replayed where the first ones differ: they may still have had a batch of the size before. */
const LAST = 2;

/** The part of all allocations that may be smaller at a larger size; more are those of other operations. */
const MOST_SHRUNK = 0.01;

const less = (sizes: number[], before: number[] | undefined, at: number): boolean =>
  (sizes[at] as number) < (before?.[at] as number);

const allSteps = ({ prelude, events, steps }: Pick<Trace, 'prelude' | 'events' | 'steps'>): number[] => [
  ...prelude,
  ...events.slice(0, steps.at(-1)),
];

/** What is held when the last steps begin, then these. */
function lastSteps({ prelude, events, steps }: Pick<Trace, 'prelude' | 'events' | 'steps'>): number[] {
  const from = prelude.length + (steps[Math.max(0, steps.length - 1 - LAST)] ?? 0);
  const all = allSteps({ prelude, events, steps });
  const freed = new Set(all.slice(0, from).filter((event) => event < 0));
  const numbers = new Map<number, number>();
  const kept: number[] = [];
  let count = 0;
  for (const [at, event] of all.entries()) {
    if (event >= 0) {
      const number = count++;
      if (at < from && freed.has(-number - 1)) continue;
      numbers.set(number, numbers.size);
      kept.push(event);
    } else if (at >= from) {
      const number = numbers.get(-event - 1);
      if (number !== undefined) kept.push(-number - 1);
    }
  }
  return kept;
}

interface Weights {
  /** How far the size is on the way between the last two that were traced. */
  line: number;
  /** Lagrange's weights of the last three; null: there are fewer. */
  curve: readonly [number, number, number] | null;
}
