import { blockCount, blocksText } from '../contract/blocks.js';
import type { Observation } from '../contract/measurement.js';
import { type Rung, sameRung } from '../contract/rung.js';
import { peakBytes } from './peaks.js';

/** Sets of blocks that are tried at most: each is a probe in a process that runs already. */
const MOST_SETS = 4;
/** Of blocks whose activations hold about as many bytes for a second of recomputation (from this part of the best on) the first in the model are taken. */
const ALIKE = 0.8;

/** What checkpointing all blocks took at one size, and what some of them did. */
export interface Recomputation {
  /** With all blocks checkpointed. */
  rung: Rung;
  size: number;
  observations: readonly Observation[];
  /** That may be held, headroom taken off. */
  limitBytes: number;
}

/**
 * The rungs with fewer blocks checkpointed, from the fewest on: those that were tried at the size, and the smallest set that is predicted to
 * fit, if that has not been. Blocks whose activations hold the most bytes for each second of their recomputation are taken first.
 * Empty: the costs of the blocks are not known, or all of them have to be checkpointed.
 */
export function someBlocks({ rung, size, observations, limitBytes }: Recomputation): Rung[] {
  const here = observations.filter((o) => o.micro_batch === size && isOf(o.rung, rung));
  const whole = here.find((o) => sameRung(o.rung, rung) && o.outcome === 'fit' && (o.blocks?.length ?? 0) > 1);
  if (!whole?.blocks) return [];
  const order = cheapestFirst(whole.blocks);
  const total = order.length;
  const setOf = (count: number): Rung => ({
    ...rung,
    checkpointed_blocks: blocksText(order.slice(0, count), total),
  });
  const tried = new Map<number, Observation[]>();
  for (const o of here) {
    if (sameRung(o.rung, rung)) continue;
    const count = blockCount(o.rung.checkpointed_blocks);
    tried.set(count, [...(tried.get(count) ?? []), o]);
  }
  const all = (count: number, so: (o: Observation) => boolean): boolean => tried.get(count)?.every(so) ?? false;
  const fits = (count: number): boolean => all(count, (o) => o.outcome === 'fit');
  const isRoomy = (count: number): boolean => fits(count) && all(count, (o) => peakBeside(o) <= limitBytes);
  const least = 1 + Math.max(0, ...[...tried.keys()].filter((count) => !isRoomy(count)));
  const known = [...[...tried.keys()].filter(isRoomy), total];
  const next =
    tried.size >= MOST_SETS ? null : smallest(whole.blocks, order, { here, whole, known, least, limitBytes });
  // One that took more than was predicted, and leaves too little, is no answer where more blocks leave enough.
  const left = [...tried.keys()].filter((count) => isRoomy(count) || !fits(count));
  const counts = new Set([...left, ...(next === null ? [] : [next])]);
  return [...counts].sort((a, b) => a - b).map(setOf);
}

/** Of the same rung, whatever blocks it checkpoints. */
const isOf = (one: Rung, rung: Rung): boolean => sameRung({ ...one, checkpointed_blocks: '' }, rung);

type Costs = NonNullable<Observation['blocks']>;

/** Their numbers, the most bytes for a second first. */
function cheapestFirst(costs: Costs): number[] {
  const left = [...costs.keys()];
  const rate = (at: number): number => {
    const [bytes, seconds] = costs[at] as Costs[number];
    return bytes / Math.max(seconds, 1e-9);
  };
  return costs.map(() => {
    const best = Math.max(...left.map(rate));
    const next = left.findIndex((at) => rate(at) >= ALIKE * best);
    return left.splice(next, 1)[0] as number;
  });
}

/** How many blocks at least are predicted to have to be checkpointed; null: no other number than was tried. */
function smallest(
  costs: Costs,
  order: readonly number[],
  seen: { here: readonly Observation[]; whole: Observation; known: number[]; least: number; limitBytes: number },
): number | null {
  const { here, whole, known, least, limitBytes } = seen;
  const peaks = new Map(
    known.map((count) => [count, Math.max(...here.filter((o) => countOf(o, whole) === count).map(peakBeside))]),
  );
  for (let count = least; count < order.length; count += 1) {
    if (peaks.has(count)) return null;
    const from = Math.min(...known.filter((other) => other > count));
    const kept = order.slice(count, from).reduce((sum, at) => sum + (costs[at] as Costs[number])[0], 0);
    if ((peaks.get(from) ?? Number.POSITIVE_INFINITY) + kept <= limitBytes) return count;
  }
  return null;
}

const countOf = (o: Observation, whole: Observation): number =>
  sameRung(o.rung, whole.rung) ? (whole.blocks?.length ?? 0) : blockCount(o.rung.checkpointed_blocks);

/** The peak in which activations are held: an optimizer's step may have a higher one, beside which they have room. */
function peakBeside(o: Observation): number {
  const total = peakBytes(o.peaks) ?? Number.POSITIVE_INFINITY;
  const { forward_backward_bytes: active, optimizer_bytes: step } = o.peaks;
  return active === null || step === null ? total : total - Math.max(0, step - active);
}
