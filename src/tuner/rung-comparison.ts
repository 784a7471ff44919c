import type { Observation } from '../contract/measurement.js';
import type { Rung } from '../contract/rung.js';
import { type Contender, Contest } from './contest.js';
import { rateOf } from './recommend.js';
import type { RungSearches } from './rung-searches.js';
import type { RungSearch } from './search.js';
import type { Sizes } from './sizes.js';
import { someBlocks } from './some-blocks.js';
import { surveyRung } from './survey.js';
import type { Comparison } from './types.js';

/** Objective throughput: when every rung has been surveyed they are compared, and searched in the order of their speeds. */
export class RungComparison {
  /** Made once, when every rung has been surveyed, so that later measurements cannot change the choice. */
  #contest: Contest | null = null;
  readonly #compared = new Set<Observation>();
  /** The rungs' order once it is decided. */
  #ranking: number[] | null = null;

  constructor(private readonly searches: RungSearches) {}

  get ranking(): readonly number[] | null {
    return this.#ranking;
  }

  /** What to measure next for it; null: nothing. */
  get wanted(): Contender | null {
    return this.#ranking === null ? (this.#contest?.next() ?? null) : null;
  }

  /** Whether the observation was made for it. */
  has(o: Observation): boolean {
    return this.#compared.has(o);
  }

  /** Of at least two rungs; null: there was no choice. */
  outcome(): Comparison | null {
    if (this.#ranking === null || this.#contest === null) return null;
    const speeds = this.#contest.speeds(this.searches.constraints.worldSize);
    return speeds.length < 2 ? null : { together: this.#contest.together, speeds };
  }

  /** Takes the observation into the comparison, or begins it where every rung has been surveyed. */
  tell(observation: Observation): void {
    const { maxLaunches } = this.searches.constraints;
    const sizes = this.searches.sizes();
    if (!sizes || this.#ranking !== null) return;
    if (this.#contest === null) {
      this.#addSomeBlocks(sizes);
      this.#contest = this.#surveyed(sizes);
    } else {
      this.#compared.add(observation);
      this.#contest.tell(observation);
    }
    if (this.#contest === null) return;
    // One launch is kept for the verification of the answer, unless a fork can make it.
    const left = maxLaunches === null ? Number.POSITIVE_INFINITY : maxLaunches - this.searches.launches;
    if (!observation.alive && !observation.renewable && left <= 1) this.#contest.end();
    if (this.#contest.next() !== null) return;
    const order = this.#contest.order();
    this.#ranking = [...order, ...[...this.searches.rungs.keys()].filter((index) => !order.includes(index))];
  }

  /** Once checkpointing has been surveyed, so is that of as many blocks as its fastest size needs. */
  #addSomeBlocks(sizes: Sizes): void {
    const { rungs } = this.searches;
    const more = rungs.flatMap((rung, index) => {
      const search = this.searches.at(index, sizes);
      const decision = surveyRung(search);
      const some =
        decision.kind === 'found' && !rungs[index - 1]?.checkpointed_blocks
          ? withSomeBlocks(this.searches, search, decision.size)
          : [];
      return [...some.slice(0, 1), rung];
    });
    if (more.length > rungs.length) this.searches.rungs = more;
  }

  /** The contest of the rungs at the sizes that their surveys found; null while a survey goes on. */
  #surveyed(sizes: Sizes): Contest | null {
    const contenders: Contender[] = [];
    for (const [index, rung] of this.searches.rungs.entries()) {
      const search = this.searches.at(index, sizes);
      const decision = surveyRung(search);
      if (decision.kind === 'probe') return null;
      if (decision.kind === 'found')
        contenders.push({ index, rung, size: decision.size, rate: rateOf(search.history, decision.size) ?? 0 });
    }
    const launchEach = contenders.length > 0 && this.searches.at(0, sizes).perLaunch;
    return new Contest(contenders, this.searches.constraints.switches && !launchEach);
  }
}

/** The rungs with fewer of the blocks checkpointed; empty: there are none, or what each of them costs is not known. */
export function withSomeBlocks(
  { constraints, observations }: RungSearches,
  { rung, advisable }: Pick<RungSearch, 'rung' | 'advisable'>,
  size: number,
): Rung[] {
  if (!constraints.someBlocks || !rung.checkpointing || rung.offload || rung.checkpointed_blocks) return [];
  return someBlocks({ rung, size, observations, limitBytes: advisable });
}
