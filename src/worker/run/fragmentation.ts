import { formatBytes } from '../../common/size.js';
import type { Step } from '../../contract/hook.js';

/** Steps until the first warm-up is over, from which on the rest is compared. */
const SETTLED = 10;
/** Part of the budget by which what lies in pieces has to have grown since. */
const GROWN = 0.1;
/** Below this part of the budget in the allocator's hands there is room for more pieces. */
const FULL = 0.8;
/** Times since then that the allocator had to give its cache back and try again: once may be chance. */
const RETRIES = 2;

interface Figures {
  step: number;
  /** In the allocator's hands, but in no tensor at its own highest. */
  pieces: number;
  retries: number;
}

/**
 * What a rank's caching allocator holds beyond all that was ever in use at once. Where that goes on rising, memory lies more and more in
 * pieces, and the job runs out of it with much of it free. Said once, before.
 */
export class Fragmentation {
  #most = 0;
  #first: Figures | null = null;

  constructor(
    private readonly budgetBytes: number,
    private readonly remedy: string,
  ) {}

  /** A sentence where this step shows it; null: nothing does. */
  add({ n, reserved_bytes: reserved, allocated_peak_bytes: peak, alloc_retries: retries }: Step): string | null {
    if (reserved == null || peak == null) return null;
    this.#most = Math.max(this.#most, peak);
    const pieces = Math.max(0, reserved - this.#most);
    if (n < SETTLED) return null;
    const now = { step: n, pieces, retries: retries ?? 0 };
    this.#first ??= now;
    const { step, retries: before, pieces: then } = this.#first;
    const grown = pieces - then >= GROWN * this.budgetBytes;
    const again = now.retries - before;
    if (reserved < FULL * this.budgetBytes || !(grown || again >= RETRIES)) return null;
    const more = grown ? `, ${formatBytes(pieces - then)} more than at step ${step}` : '';
    const retried = again === 0 ? '' : `, and has given its cache back ${again} times since step ${step}`;
    return `Memory lies in pieces, and the job may run out of it: at step ${n} torch's allocator holds ${formatBytes(reserved)} of a budget of ${formatBytes(this.budgetBytes)}, of which ${formatBytes(pieces)} were in no tensor at any time${more}${retried}. ${this.remedy}`;
  }
}

/** The same of all ranks of a launch, until one has told of it: all of them do the same. */
export class Pieces {
  readonly #ranks = new Map<number, Fragmentation>();
  #told = false;

  constructor(
    private readonly budgetBytes: number,
    private readonly expandable: boolean,
  ) {}

  add(step: Step, rank: number): string | null {
    if (this.#told) return null;
    const fragmentation = this.#ranks.get(rank) ?? new Fragmentation(this.budgetBytes, remedyFor(this.expandable));
    this.#ranks.set(rank, fragmentation);
    const told = fragmentation.add(step);
    this.#told = told !== null;
    return told;
  }
}

/** What keeps memory in one piece, or leaves the pieces room. */
export function remedyFor(expandable: boolean): string {
  return expandable
    ? 'A smaller micro-batch leaves it room: --max-batch N or a larger --headroom.'
    : 'Segments that can grow keep it in one: --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.';
}
