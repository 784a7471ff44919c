import type { Probe } from '../contract/measurement.js';
import type { MemoryModel } from './model.js';
import type { Parabola } from './parabola.js';
import type { RungHistory } from './rung-history.js';
import { closingSize, type Sizes, SMALL } from './sizes.js';

/** Where each size is a launch, or the peaks follow a curve: the part of the budget that the size before the limit is to fill; it may be the one to recommend. */
export const ROOMY = 0.965;

/** What the choice of the next size on a rung looks at. */
export interface SearchState {
  history: RungHistory;
  model: MemoryModel;
  sizes: Sizes;
  /** Each probe is a launch of its own: no size may be wasted, and every one is proof by itself. */
  perLaunch: boolean;
  /** Bytes that the size to recommend may take. */
  advisable: number;
  /** Each byte is counted: no allocator of a GPU keeps memory that it could give back. */
  counted: boolean;
  /** Where the peak may rise with the square of the size: the curve that takes the place of the model's line. */
  parabola?: Parabola;
}

export interface NextSize {
  size: number;
  purpose: Probe['purpose'];
  /** Only a fresh process would be believed. */
  fresh?: boolean;
  why: string;
}

/** What ends the search if it fails; `size`: the least that does, or one a little nearer. */
export function closing(top: number, size = closingSize(top)): NextSize {
  return { size, purpose: 'bound', why: 'to see a size fail within 2 % of the largest' };
}

/** Where every byte is counted: the largest size that leaves libraries their room, by the steepest of the lines. */
export function exactLimit({ model }: SearchState): number {
  const within = (bytes: number): number =>
    Math.min(
      model.largestWithin(bytes) as number,
      model.steepestWithin(bytes) ?? Number.POSITIVE_INFINITY,
      model.curved,
    );
  const all = within(model.budgetBytes);
  return all < SMALL ? all : Math.max(SMALL - 1, within(model.budgetBytes - model.processNoise));
}
