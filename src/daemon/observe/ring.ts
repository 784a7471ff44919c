import type { MemorySample } from '../../contract/verbs.js';

/**
 * Samples of one job from its beginning to now, never more than `capacity`: when it is full every second one is left out
 * and new ones are taken half as often, so that an hour and a week both fit.
 */
export class Ring {
  readonly #capacity: number;
  #samples: MemorySample[];
  #every: number;
  #skipped: number;

  /** `begun`: what another had kept of it. */
  constructor(capacity = 600, begun: { samples: readonly MemorySample[]; every: number } = { samples: [], every: 1 }) {
    this.#capacity = capacity;
    this.#samples = [...begun.samples];
    this.#every = begun.every;
    this.#skipped = begun.every; // time has passed: the next one stands for itself
  }

  /** Keeps the highest of those that it leaves out: a peak must not vanish. Returns whether it was kept by itself. */
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
    // Where nearly every sample is a launch of its own there is little to join: then the oldest go
    this.#samples = thinned.slice(-this.#capacity);
  }
}
