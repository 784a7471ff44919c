import type { Loop } from '../../contract/hook.js';
import type { Target } from '../target.js';
import type { WorkRequest } from '../types.js';
import type { Measurement } from './worst-rank.js';

/** What a search learns of the script and its loop, besides what each size takes. */
export class LoopFacts {
  /** The script's own settings, as the hook saw them. */
  loop: Loop | null = null;
  /** Samples that a rank has at most, of the data set of the loader whose batches are of the sizes that are asked for; null: not known. */
  samples: number | null = null;
  /** The program takes no more than this on a device, whatever the budget: its framework's memory pool is limited. Null: not known. */
  mostBytes: number | null = null;
  /** The script autocasts by itself. */
  ownAmp = false;
  /** Tokens of the longest sample; null: samples are counted, or their lengths are not known. */
  longestTokens: number | null = null;
  #learned = false;

  constructor(
    private readonly request: WorkRequest,
    private readonly target: Target,
  ) {}

  /** Whether it learned something of the loop since the last call, which changes the bounds. */
  hasLearned(): boolean {
    const learned = this.#learned;
    this.#learned = false;
    return learned;
  }

  /** A process has come to its training loop. The first one may have ended before, so that bounds were set without it. */
  saw(loop: Loop | null): void {
    if (loop !== null && this.loop === null) {
      this.loop = loop;
      this.#learned = true;
    }
    this.samples ??= this.#partOf(loop?.samples ?? null);
  }

  /** The loop was none of a training. */
  forget(): void {
    this.loop = null;
    this.samples = null;
  }

  /** Ranks share a data set. */
  #partOf(samples: number | null): number | null {
    return samples === null ? null : Math.ceil(samples / this.target.worldSize);
  }

  /** Learns the loop's own accumulation and autocast from its first measured step. */
  learn(measurement: Measurement): void {
    const { own } = this.target;
    const accumulation = measurement.own_accumulation ?? 1;
    if (own.accumulation === null) {
      own.accumulation = accumulation;
      this.#learned ||= accumulation > 1;
    }
    if (this.request.options.microBatchTokens !== undefined) {
      const longest = Math.max(this.longestTokens ?? 0, measurement.longest_tokens ?? 0) || null;
      this.#learned ||= longest !== this.longestTokens;
      this.longestTokens = longest;
    }
    this.#learned ||= (measurement.own_amp ?? false) && !this.ownAmp;
    this.ownAmp ||= measurement.own_amp ?? false;
  }

  /** A flag whose value is the size of the loader's batches can have no more than there are samples. */
  boundByData(loop: Loop | null, asked: number): void {
    if (this.samples !== null || loop?.samples == null || loop.own_batch !== asked) return;
    if (asked === 1 && !loop.can.batch) return; // any loader may have batches of one
    this.samples = this.#partOf(loop.samples);
    this.#learned = true;
  }

  /** Its framework's memory pool takes no more than so many bytes on a device. */
  limitedTo(most: number | null): void {
    if (most === null || this.mostBytes !== null) return;
    this.mostBytes = most;
    this.#learned = true;
  }
}
