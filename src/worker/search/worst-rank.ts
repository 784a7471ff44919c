import type { Measured } from '../../contract/hook.js';

/** Worst rank of one probe: peaks and times are maxima over the ranks. */
export type Measurement = Omit<Measured, 't'>;

/** What all ranks have is what the one has that has least of it. */
const LEAST = new Set(['steps', 'quiet_steps']);
/** What was asked for, and what the script does by itself: the first rank's. */
const FIRST = new Set(['micro_batch', 'accumulation', 'own_accumulation', 'own_amp']);

/** What a probe cost on the rank that it cost most: it is the one that decides. `ranks`: at least one. */
export function worstRank(ranks: Measured[]): Measurement {
  const slowest = ranks.reduce((a, b) => (sum(b.step_s) > sum(a.step_s) ? b : a));
  const names = new Set(ranks.flatMap((rank) => Object.keys(rank) as (keyof Measured)[]));
  const worst = [...names].map((name) => [
    name,
    worstOf(
      name,
      ranks.map((rank) => rank[name]),
    ),
  ]);
  return { ...Object.fromEntries(worst), step_s: slowest.step_s };
}

function worstOf(name: string, values: unknown[]): unknown {
  if (FIRST.has(name)) return values[0];
  const numbers = values.filter((value) => typeof value === 'number');
  if (numbers.length > 0) return LEAST.has(name) ? Math.min(...numbers) : Math.max(...numbers);
  return values.find(Boolean) ?? values.find((value) => value !== undefined) ?? null;
}

const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0);
