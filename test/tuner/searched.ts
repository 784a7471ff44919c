import { readFileSync } from 'node:fs';
import { type Job, MIB } from './machine.js';

/** One line of gpu-searches.jsonl: what a search saw on an H200, and what a bisection with fresh processes found there. */
interface Searched {
  model: string;
  amp: string;
  torch: string;
  budget_bytes: number;
  /** Seconds of one start of the script to its third step, and of a search's launch to its training loop. */
  bare_s: number;
  startup_s: number;
  /** Largest size that a fresh process takes. */
  largest: number;
  /** First size that a process which had run others could not take; null: none was tried. */
  warm_bad: number | null;
  /** Where the line of the allocated bytes meets the budget. */
  allocated_meets_budget_at: number;
  before: { found: number; probes: number; launches: number; oom: number; search_s: number };
  /** `[size, peak bytes, seconds a step]` with segments that can grow, in one process, ascending; absent: not recorded. */
  grown?: [number, number, number][];
  /** `[size, peak bytes, seconds a step, seconds of the probe, steps]` in the order in which one process ran them. */
  probes: [number, number, number, number, number][];
}

export interface SearchedJob extends Job {
  name: string;
  /** Largest size that a fresh process takes. */
  truth: number;
  budgetBytes: number;
  before: Searched['before'];
  bareSeconds: number;
  /** Seconds of a start, and of a probe of a size that its process has not seen. */
  startSeconds: number;
  probeSeconds(size: number, steps: number): number;
}

/** Driver memory of a process beside what its allocator holds. */
const CONTEXT = 740 * MIB;

/** Ten workloads as an H200 ran them under 24 GiB. */
export function searchedJobs(): SearchedJob[] {
  const file = new URL('../fixtures/curves/gpu-searches.jsonl', import.meta.url);
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  return lines.map((line) => jobOf(JSON.parse(line) as Searched));
}

function jobOf(seen: Searched): SearchedJob {
  const { budget_bytes: budget, allocated_meets_budget_at: meets, largest } = seen;
  const base = (seen.probes[0]?.[1] as number) - CONTEXT;
  const allocated = (size: number) => base + ((budget - CONTEXT - base) * size) / meets;
  const clear = seen.probes.filter(([, peak]) => peak < 0.95 * budget);
  const reserved = clear.map(([size, peak]) => [size, peak - CONTEXT] as const);
  const seconds = seen.probes.map(([size, , step]) => [size, step] as const);
  // The first probe at a size pays for more than its steps; the longest ones waited for the allocator to come to rest.
  const overheads = seen.probes.map(
    ([size, , step, wall, steps]) => [size, Math.max(0.1, wall - steps * step)] as const,
  );
  const warmBad = seen.warm_bad ?? largest + 3;
  const grown = seen.grown ?? reserved.map(([size]) => [size, 1.02 * allocated(size) + CONTEXT] as const);
  // At the limit peaks saturate: beyond the last that is clear of it they rise as before.
  const clearOf = grown.filter(([, peak]) => peak < 0.985 * budget).map(([size, peak]) => [size, peak] as const);
  const meet = (size: number) => interpolate(clearOf, size);
  const grownSeconds = (seen.grown ?? []).map(([size, , step]) => [size, step] as const);
  return {
    name: `${seen.model} ${seen.amp === 'off' ? 'fp32' : seen.amp}`,
    truth: largest,
    budgetBytes: budget,
    before: seen.before,
    bareSeconds: seen.bare_s,
    startSeconds: seen.startup_s,
    probeSeconds: (size, steps) => interpolate(overheads, size) + steps * interpolate(seconds, size),
    run: (probe, warm) => {
      const size = probe.micro_batch;
      const fits = probe.expandable_segments ? meet(size) <= budget : warm ? size < warmBad : size <= largest;
      const slack =
        interpolate(reserved, Math.min(size, clear.at(-1)?.[0] as number)) /
          allocated(Math.min(size, clear.at(-1)?.[0] as number)) -
        1;
      if (!fits) {
        const unallocated = probe.expandable_segments ? 0 : slack > 0.08 ? 0.12 * budget : 0.01 * budget;
        return { outcome: 'device_oom', refused_bytes: 64 * MIB, unallocated_bytes: unallocated, free_bytes: 16 * MIB };
      }
      const held = probe.expandable_segments
        ? meet(size) - CONTEXT
        : Math.min(Math.max(interpolate(reserved, size), 1.003 * allocated(size)), budget - CONTEXT - 64 * MIB);

      return {
        outcome: 'fit',
        step_s: interpolate(probe.expandable_segments && grownSeconds.length > 0 ? grownSeconds : seconds, size),
        peaks: {
          total_bytes: held + CONTEXT,
          forward_backward_bytes: Math.min(allocated(size), held),
          optimizer_bytes: 0.7 * base,
          reserved_bytes: held,
          resident_bytes: Math.round(0.6 * base),
        },
      };
    },
  };
}

/** Piecewise linear; beyond the ends along the outermost pieces. Points in any order. */
function interpolate(unordered: readonly (readonly [number, number])[], at: number): number {
  const points = [...new Map(unordered)].sort(([a], [b]) => a - b);
  const after = points.findIndex(([x]) => x >= at);
  const index = Math.max(1, after < 0 ? points.length - 1 : after);
  const [x0, y0] = points[index - 1] as readonly [number, number];
  const [x1, y1] = points[index] as readonly [number, number];
  return y0 + ((y1 - y0) / (x1 - x0)) * (at - x0);
}
