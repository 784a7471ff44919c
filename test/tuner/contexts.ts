import { readFileSync } from 'node:fs';
import { GIB, type Job, MIB } from './machine.js';

/**
 * One line of gpu-contexts.jsonl: what a Llama of 8B parameters with adapters took of an H200 by its sequence length, each length a launch
 * (`bench/context`, torch 2.11). Figures in MiB.
 */
interface Recorded {
  weights: string;
  budget_gib: number;
  rung: string;
  points: (Fit | { value: number; outcome: 'device_oom' })[];
}

/** Lengths are multiples of it. */
export const STEP = 64;
/** Of the adapters, as recorded. */
const GRADIENTS = 160 * MIB;

interface Fit {
  value: number;
  outcome: 'fit';
  total: number;
  /** Allocated in forward and backward, and in the optimizer's step. */
  active: number;
  optimizer: number;
  reserved: number;
  retries: number;
  restless: boolean;
}

export interface ContextJob extends Job {
  name: string;
  budgetBytes: number;
  /** The smallest length that was run: where a search begins. */
  first: number;
  /** The largest multiple of 64 below the smallest that failed for which 2 % of the budget is left for what lies in pieces. */
  longest: number;
}

const isFit = (point: Recorded['points'][number]): point is Fit => point.outcome === 'fit';

export function contextJobs(): ContextJob[] {
  const file = new URL('../fixtures/curves/gpu-contexts.jsonl', import.meta.url);
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  return lines.map((line) => jobOf(JSON.parse(line) as Recorded));
}

function jobOf({ weights, budget_gib: gib, rung, points }: Recorded): ContextJob {
  const fits = points.filter(isFit);
  const [first, last] = [fits[0] as Fit, fits.at(-1) as Fit];
  const failing = points.find((point) => point.outcome !== 'fit')?.value ?? Number.POSITIVE_INFINITY;
  // Below the first length at which the cache was given back it was not.
  const full = fits.find((point) => point.retries > 0)?.value ?? Number.POSITIVE_INFINITY;
  const of = (value: number, name: 'active' | 'optimizer' | 'reserved', among = fits) =>
    Math.round(along(among, value, name) * MIB);
  const context = (first.total - first.reserved) * MIB;
  const provable = (value: number) => value < failing && context + of(value, 'active') <= 0.98 * gib * GIB;
  let longest = first.value;
  while (provable(longest + STEP)) longest += STEP;
  return {
    name: `${weights} under ${gib} GiB, ${rung}`,
    budgetBytes: gib * GIB,
    first: first.value,
    longest,
    run: ({ micro_batch: value }) => {
      if (value >= failing) return { outcome: 'device_oom' };
      const crowded = value >= full;
      const clear = fits.filter((point) => point.retries === 0);
      const reserved = Math.min(gib * GIB - context, of(value, 'reserved', crowded ? fits : clear));
      return {
        outcome: 'fit',
        ...(crowded ? { steps: 10, alloc_retries: 6 } : {}),
        restless: crowded && (fits.find((point) => point.value >= value) ?? last).restless,
        flexible_workspaces: true,
        peaks: {
          // A retried allocation had asked the driver for all that was left.
          total_bytes: crowded ? gib * GIB : reserved + context,
          forward_backward_bytes: of(value, 'active'),
          optimizer_bytes: of(value, 'optimizer'),
          gradient_bytes: GRADIENTS,
          reserved_bytes: reserved,
        },
      };
    },
  };
}

/** Between measured lengths along the line, beyond them along the last one. */
function along(points: readonly Fit[], value: number, name: 'active' | 'optimizer' | 'reserved'): number {
  const after = points.findIndex((point) => point.value >= value);
  const at = after < 0 ? points.length - 1 : Math.max(1, after);
  const [a, b] = [points[at - 1] as Fit, points[at] as Fit];
  return b === undefined ? a[name] : a[name] + ((value - a.value) * (b[name] - a[name])) / (b.value - a.value);
}
