import type { Measured } from './hook-messages.js';

/** Worst rank of one probe: peaks and times are maxima over the ranks. */
export type Measurement = Omit<Measured, 't' | 'step_s'> & { step_s: number[] };

/** What a probe cost on the rank that it cost most: it is the one that decides. `ranks`: at least one. */
export function worstRank(ranks: Measured[]): Measurement {
  const first = ranks[0] as Measured;
  const known = (pick: (rank: Measured) => number | null | undefined): number[] =>
    ranks.map(pick).filter((value) => typeof value === 'number');
  const most = (pick: (rank: Measured) => number | null | undefined): number | null => {
    const values = known(pick);
    return values.length === 0 ? null : Math.max(...values);
  };
  const least = (pick: (rank: Measured) => number | null | undefined): number | null => {
    const values = known(pick);
    return values.length === 0 ? null : Math.min(...values);
  };
  const slowest = ranks.reduce((a, b) => (sum(b.step_s) > sum(a.step_s) ? b : a));
  return {
    ...first,
    total_bytes: most((rank) => rank.total_bytes),
    forward_backward_bytes: most((rank) => rank.forward_backward_bytes),
    optimizer_bytes: most((rank) => rank.optimizer_bytes),
    reserved_bytes: most((rank) => rank.reserved_bytes),
    resident_bytes: most((rank) => rank.resident_bytes),
    parameter_bytes: most((rank) => rank.parameter_bytes),
    gradient_bytes: most((rank) => rank.gradient_bytes),
    optimizer_state_bytes: most((rank) => rank.optimizer_state_bytes),
    alloc_retries: most((rank) => rank.alloc_retries) ?? 0,
    growth_bytes_per_step: most((rank) => rank.growth_bytes_per_step),
    short: ranks.some((rank) => rank.short),
    kept_by: ranks.find((rank) => rank.kept_by)?.kept_by ?? null,
    creep_bytes_per_step: most((rank) => rank.creep_bytes_per_step),
    quiet_steps: least((rank) => rank.quiet_steps),
    steps: Math.min(...ranks.map((rank) => rank.steps)),
    step_s: slowest.step_s,
  };
}

const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0);
