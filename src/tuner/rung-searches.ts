import type { Observation } from '../contract/measurement.js';
import type { Rung } from '../contract/rung.js';
import { type EffectivePlan, planEffective } from './accumulation.js';
import { countedAs } from './expandable-segments.js';
import { canGiveBack } from './peaks.js';
import { RungHistory } from './rung-history.js';
import type { RungSearch } from './search.js';
import { range, type Sizes, valuesBetween } from './sizes.js';
import { isTooFew, startAfter } from './too-few.js';
import type { Constraints } from './types.js';

/** A search stops here: memory does not limit micro-batches this large. */
export const LARGEST = 2 ** 20;

interface How {
  mayFillBudget?: boolean;
  grows?: boolean;
  isFirst?: boolean;
}

/** What the constraints and the observations so far come to: the sizes to search among, and where the search stands on each rung. */
export class RungSearches {
  readonly plan: EffectivePlan;
  readonly observations: Observation[] = [];
  #constraints: Constraints;

  constructor(constraints: Constraints) {
    const { goal, effectiveBatch, ownBatch, worldSize, value, minBatch } = constraints;
    const kept =
      goal === 'keep' && effectiveBatch === null && ownBatch !== null ? ownBatch * worldSize : effectiveBatch;
    this.#constraints = { ...constraints, effectiveBatch: kept };
    const plan = planEffective(this.#constraints);
    const choices = (max: number, least = minBatch) => valuesBetween(least, max, value?.multipleOf ?? null);
    this.plan = value ? { ...plan, choices } : plan;
  }

  get constraints(): Readonly<Constraints> {
    return this.#constraints;
  }

  get rungs(): readonly Rung[] {
    return this.#constraints.rungs;
  }

  set rungs(rungs: Rung[]) {
    this.#constraints = { ...this.#constraints, rungs };
  }

  get keeps(): boolean {
    return this.#constraints.goal === 'keep' && this.#constraints.ownBatch !== null;
  }

  /** Whether the allocator can be given segments that can grow. */
  get grows(): boolean {
    return this.#constraints.expandable === 'possible';
  }

  /** The observations that say something about memory: a script that cannot train on so few samples has not failed. */
  get telling(): readonly Observation[] {
    return this.observations.filter((o) => !isTooFew(o, this.#constraints.minBatch));
  }

  /** The last of those with too few samples for the script; null: none were. */
  get tooFew(): Observation | null {
    return this.observations.findLast((o) => isTooFew(o, this.#constraints.minBatch)) ?? null;
  }

  get launches(): number {
    return Math.max(0, ...this.observations.map((o) => o.launch));
  }

  /** The micro-batches to search among; null if the options leave none. */
  sizes(): Sizes | null {
    const { minBatch, maxBatch, goal, ownBatch, accumulation, value } = this.#constraints;
    if (value) return valuesBetween(minBatch, maxBatch ?? LARGEST, value.multipleOf);
    const { perDevice, choices } = this.plan;
    const least = this.tooFew === null ? minBatch : Math.max(minBatch, startAfter(this.tooFew));
    if (goal === 'keep' && perDevice !== null) {
      return choices(Math.min(ownBatch ?? perDevice, maxBatch ?? LARGEST), least);
    }
    const lo = accumulation === 'off' && perDevice !== null ? perDevice : least;
    const hi = maxBatch ?? LARGEST;
    return lo >= minBatch && lo <= hi ? range(lo, hi) : null;
  }

  /** The search on the ladder's rung of that index. */
  at(index: number, sizes: Sizes, how: Omit<How, 'isFirst'> = {}): RungSearch {
    const search = this.on(this.rungs[index] as Rung, sizes, { ...how, isFirst: index === 0 });
    return index === 0 ? { ...search, guess: this.#guess(search.history, sizes) } : search;
  }

  on(rung: Rung, sizes: Sizes, { mayFillBudget = false, grows = this.grows, isFirst = false }: How = {}): RungSearch {
    const c = this.#constraints;
    const needs = (size: number) => this.plan.probeAccumulation(size);
    const counted = countedAs(grows, this.telling);
    const canGrow = grows || c.expandable === 'on';
    const believed = (o: Observation): boolean => mayFillBudget || (canGrow && canGiveBack(o, c.budgetBytes));
    const history = new RungHistory(rung, counted, c.budgetBytes, needs, isFirst ? c.knownBad : null, believed);
    const fits = this.observations.filter((o) => o.outcome === 'fit');
    const last = this.observations.at(-1);
    return {
      rung,
      grows: canGrow,
      turnsOn: grows,
      history,
      sizes,
      plan: this.plan,
      budgetBytes: c.budgetBytes,
      curved: c.value !== undefined,
      headroomPct: c.headroomPct,
      advisable: c.budgetBytes * (1 - c.headroomPct / 100),
      steps: c.steps,
      driven: c.driven,
      alive: (last?.alive ?? false) && (last?.expandable_segments ?? false) === grows,
      perLaunch: fits.length > 0 && fits.every((o) => !o.alive),
      counted: c.counted ?? false,
      guess: null,
    };
  }

  /**
   * Where each size is a launch and the script's own batch has failed while training, half of it is tried next: it most likely
   * fits, and such a fit is verified.
   */
  #guess(history: RungHistory, sizes: Sizes): number | null {
    const { goal, ownBatch, driven, value } = this.#constraints;
    if (value) return value.first === null ? null : sizes.up(value.first);
    if (goal !== 'keep' || ownBatch === null || driven) return null;
    const failure = history.all.find((o) => o.micro_batch === ownBatch && o.outcome !== 'fit');
    return failure && failure.phase !== 'load' ? sizes.down(ownBatch / 2) : null;
  }
}
