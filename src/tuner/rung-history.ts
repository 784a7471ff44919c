import { lifeOf, type Observation } from '../contract/measurement.js';
import { type Rung, sameRung } from '../contract/rung.js';
import { steepest } from './line.js';
import { fillsBudget, isSteady, lastingPeak, mayGrow, outgrows } from './peaks.js';
import { BELIEVED, mayVary } from './step-peaks.js';

/**
 * What the observations say about one rung. A fit is *verified* when a fresh process showed it (the size was the first thing
 * that its launch ran, or it followed a larger one that was): only a verified fit may be answered, and where segments can grow
 * a smaller one than that. Fits and failures in a process that had run other sizes before are hints: near the limit such a
 * process can take a little more or less.
 */
export class RungHistory {
  /** Every observation on the rung, in order. */
  readonly all: readonly Observation[];
  /** Largest size that fits as far as is known, verified or not; null: none. */
  readonly top: number | null;
  /** Largest verified fit; null: none. */
  readonly largestVerified: number | null;
  /** Smallest size above `top` that is known not to fit; null: none. */
  readonly ceiling: number | null;
  /** Smallest size seen to fail here; null: none was. */
  readonly smallestFailing: number | null;
  /** A size failed as the first thing that its process ran. */
  readonly hasFailedFresh: boolean;
  readonly #bad: ReadonlySet<number>;
  /** Measured for long enough to know that memory does not grow out of the budget. */
  readonly #sure: (o: Observation) => boolean;
  readonly #fits = new Map<number, Observation[]>();
  /** What ran at all, whatever is believed of it. */
  readonly #ran: readonly Observation[];

  /**
   * `needs`: the accumulation that a probe of a size must have had to count. `knownBad`: told from outside. `mayFillBudget`: which
   * sizes that fill the budget to the brim are believed all the same.
   */
  constructor(
    rung: Rung,
    observations: readonly Observation[],
    readonly budgetBytes: number,
    needs: (size: number) => number,
    knownBad: number | null = null,
    mayFillBudget: (o: Observation) => boolean = () => false,
  ) {
    this.all = observations.filter((o) => sameRung(o.rung, rung));
    const counted = this.all.filter((o) => Math.min(o.accumulation, 2) >= needs(o.micro_batch) || o.outcome !== 'fit');
    const ran = (o: Observation) => o.outcome === 'fit' && !outgrows(o, budgetBytes);
    const lasts = (o: Observation) => ran(o) && (!fillsBudget(o, budgetBytes) || mayFillBudget(o));
    this.#ran = counted.filter(ran);
    const fits = counted.filter(lasts);
    const rise = steepestOf(fits);
    const bads = counted.filter((o) => !lasts(o) && !fits.some((later) => disproves(later, o, budgetBytes, rise)));
    const failedFresh = bads.filter((o) => o.fresh && !ran(o)).map((o) => o.micro_batch);
    this.#sure = (o) =>
      o.steps >= BELIEVED ||
      o.short === true ||
      !mayGrow(o, budgetBytes) ||
      isSteady(o.micro_batch, observations, budgetBytes);
    const verified = new Set(fits.filter((o) => this.isVerification(o)).map((o) => o.micro_batch));
    for (const size of failedFresh) verified.delete(size);
    // Where peaks vary from step to step, a larger size than one that failed was lucky: there is no other reason for it to fit.
    const failing = min(bads.filter((o) => !ran(o)).map((o) => o.micro_batch)) ?? Number.POSITIVE_INFINITY;
    for (const size of verified) if (size > failing && mayVary(size, counted, budgetBytes)) verified.delete(size);
    const bad = new Set([
      ...bads.map((o) => o.micro_batch).filter((size) => !verified.has(size)),
      ...(knownBad === null ? [] : [knownBad]),
    ]);
    this.#bad = bad;
    const proved = max(verified) ?? 0;
    // A size below one that is proved tells nothing of those above it.
    const lowestBad = min([...bad].filter((size) => size > proved));
    for (const fit of fits) {
      const size = fit.micro_batch;
      if (!verified.has(size) && lowestBad !== null && size >= lowestBad) continue;
      if (knownBad !== null && size >= knownBad && !verified.has(size)) continue;
      this.#fits.set(size, [...(this.#fits.get(size) ?? []), fit]);
    }
    this.top = max(this.#fits.keys());
    this.largestVerified = proved || null;
    this.ceiling = min([...bad].filter((size) => size > (this.top ?? 0)));
    this.smallestFailing = min(bads.map((o) => o.micro_batch).filter((size) => !verified.has(size)));
    this.hasFailedFresh = failedFresh.length > 0;
  }

  /** The launch of the last probe can be forked: a fresh process costs no start. */
  get forks(): boolean {
    return this.all.at(-1)?.renewable === true;
  }

  /** The sizes that fit, ascending. */
  get sizes(): number[] {
    return [...this.#fits.keys()].sort((a, b) => a - b);
  }

  /** Of these those that a process began with. */
  get begun(): number[] {
    return this.sizes.filter((size) => this.fits(size).some((o) => o.fresh));
  }

  /** The fits of one size; empty if it does not fit or was not tried. */
  fits(size: number): readonly Observation[] {
    return this.#fits.get(size) ?? [];
  }

  /** The sizes below `size` that are known not to fit although a larger one does: near the limit that happens. */
  failingBelow(size: number): number[] {
    return [...this.#bad].filter((bad) => bad < size).sort((a, b) => a - b);
  }

  /** Whether a fresh process took the size. */
  isVerified(size: number): boolean {
    return this.fits(size).some((o) => this.isVerification(o));
  }

  /** The size that the process began with, if that fitted; null if it did not, or began on another rung. */
  firstSizeOf(life: number): number | null {
    return this.all.find((o) => lifeOf(o) === life && o.fresh && o.outcome === 'fit')?.micro_batch ?? null;
  }

  /** Whether it was measured for long enough to know that memory does not grow out of the budget. */
  isSure(o: Observation): boolean {
    return this.#sure(o);
  }

  /** Whether this fit was in a process that tells what a fresh one takes. */
  isVerification(o: Observation): boolean {
    return this.#sure(o) && isVerified(o, this.#ran, this.budgetBytes);
  }

  /** Whether the allocator had to give its cache back in a steady step: it fits, but which step it fails is chance. */
  hasRetries(size: number): boolean {
    return this.fits(size).some((o) => o.alloc_retries > 0);
  }

  /** The smallest size above `top` that ran, but only to the brim; null: none did. */
  get filledBudgetAt(): number | null {
    const { ceiling } = this;
    return ceiling !== null && this.#ran.some((o) => o.micro_batch === ceiling) ? ceiling : null;
  }

  /** The most that lay in pieces where a process gave back its cache in a steady step, in bytes; null: not known. */
  get pieces(): number | null {
    return max(this.#ran.filter((o) => o.alloc_retries > 0).map((o) => o.peaks.pieces_bytes ?? 0)) || null;
  }

  /** The last failure of the smallest size that failed. */
  get smallestFailure(): Observation | null {
    const failures = this.all.filter((o) => o.outcome !== 'fit');
    const smallest = min(failures.map((o) => o.micro_batch));
    return failures.findLast((o) => o.micro_batch === smallest) ?? null;
  }
}

/**
 * First in its process, or after a larger one (with as many gradients resident) that was first and fitted, if it had room: where the cache was given
 * back to the brim, what that one has left decides (nanoGPT on an H100: 325 ran after 329, and in no other process).
 */
function isVerified(o: Observation, fits: readonly Observation[], budgetBytes: number): boolean {
  if (o.fresh) return true;
  const follows = fits.some(
    (other) => other.fresh && lifeOf(other) === lifeOf(o) && other.micro_batch >= o.micro_batch,
  );
  return follows && !fillsBudget(o, budgetBytes);
}

/**
 * The steepest rise from one size to the next, bytes for each sample: of the peak, or of what the optimizer's step may hide. A process
 * may keep something of the sizes before, and each another amount. So fresh ones are held against fresh ones, and what a process
 * took after its first size against what else it took then.
 */
function steepestOf(fits: readonly Observation[]): number {
  const least = (max(fits.map((fit) => fit.micro_batch)) ?? 0) / 4;
  const among = (group: readonly Observation[]) => steepestAmong(group, least);
  const fresh = fits.filter((fit) => fit.fresh);
  const worn = fits.filter((fit) => !fit.fresh);
  const lives = [...new Set(worn.map(lifeOf))].map((life) => worn.filter((fit) => lifeOf(fit) === life));
  return Math.max(...[fresh, ...lives].map(among));
}

/** Of each size the least that was measured; those below `least` say nothing of the largest where two others do. */
function steepestAmong(group: readonly Observation[], least: number): number {
  const of = (bytes: (fit: Observation) => number | null) => {
    const peaks = new Map<number, number>();
    for (const fit of group) {
      const before = peaks.get(fit.micro_batch) ?? Number.POSITIVE_INFINITY;
      peaks.set(fit.micro_batch, Math.min(before, bytes(fit) ?? 0));
    }
    const sorted = [...peaks].sort(([one], [other]) => one - other);
    return steepest(sorted.filter(([size], at) => size >= least || at >= sorted.length - 2));
  };
  return Math.max(
    of(lastingPeak),
    of((fit) => fit.peaks.forward_backward_bytes),
  );
}

/** A line to a size less far above than this, or than two samples, is believed. */
const NEAR = 0.92;

/**
 * A process that has run many sizes may keep something of each. Where every byte is counted a fresh one tells that such a
 * process failed for that alone: even if all that it holds grew with the size, or, from near by, if it grew on as steeply as it ever
 * did (`rise`, bytes for each sample), it would have room for the other. Fresh, that one is tried again.
 */
function disproves(fresh: Observation, failure: Observation, budgetBytes: number, rise: number): boolean {
  const peak = lastingPeak(fresh);
  const exact = fresh.fresh && peak !== null && !fresh.peaks.reserved_bytes;
  const apart = !failure.fresh && lifeOf(fresh) >= lifeOf(failure);
  if (!exact || !apart) return false;
  const ray = peak / fresh.micro_batch;
  const near = fresh.micro_batch >= Math.min(NEAR * failure.micro_batch, failure.micro_batch - 2);
  const slope = near && rise > 0 ? rise : Math.max(ray, rise);
  return peak + (failure.micro_batch - fresh.micro_batch) * slope <= budgetBytes;
}

function min(values: Iterable<number>): number | null {
  let least: number | null = null;
  for (const value of values) if (least === null || value < least) least = value;
  return least;
}

function max(values: Iterable<number>): number | null {
  let most: number | null = null;
  for (const value of values) if (most === null || value > most) most = value;
  return most;
}
