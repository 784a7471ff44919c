import { readFileSync } from 'node:fs';
import type { Job } from './machine.js';
import { GIB, MIB } from './machine.js';

/** One line of gpu-curves.jsonl: peaks at sizes up to the 24 GiB limit. */
interface Curve {
  model: string;
  amp: string;
  ckpt: number;
  budget_gib: number;
  points: { b: number; alloc: number; resv: number; step_s: number }[];
}

interface TrueMax {
  model: string;
  amp: string;
  true_max: number;
}

/** One line of phase-peaks.jsonl: a process that probed several sizes, and where it ran out. */
interface Phases {
  model: string;
  amp: string;
  oom_at: number;
  probes: { b: number; forward_backward_mib: number; optimizer_mib: number; reserved_mib: number }[];
}

export interface RecordedJob extends Job {
  name: string;
  /** Largest size that fits a fresh process. */
  trueMax: number;
  /** First size that a process which had probed others could not take. */
  warmBad: number;
  budgetBytes: number;
}

/** Memory of the card that is not the allocator's: the recorded runs' limit was the allocator's alone. */
const CONTEXT = 610 * MIB;

/** The eight workloads whose true maximum was measured, as jobs that answer from the recorded curves. */
export function recordedJobs(): RecordedJob[] {
  const curves = lines<Curve>('gpu-curves');
  const phases = lines<Phases>('phase-peaks');
  return lines<TrueMax>('gpu-true-max').map((truth) => {
    const same = (line: { model: string; amp: string }) => line.model === truth.model && line.amp === truth.amp;
    const curve = curves.find((line) => same(line) && line.ckpt === 0);
    const phase = phases.find(same);
    if (!curve || !phase) throw new Error(`No curve for ${truth.model} ${truth.amp}`);
    return jobOf(curve, phase, truth);
  });
}

function jobOf(curve: Curve, phase: Phases, truth: TrueMax): RecordedJob {
  const limit = curve.budget_gib * GIB;
  const optimizer = Math.max(...phase.probes.map((p) => p.optimizer_mib)) * MIB;
  const active = phase.probes.map((p) => [p.b, p.forward_backward_mib * MIB] as const);
  const clear = curve.points.filter((p) => p.resv < 0.95 * limit);
  const reserved = clear.map((p) => [p.b, p.resv] as const);
  const seconds = curve.points.map((p) => [p.b, p.step_s] as const);
  return {
    name: `${truth.model} ${truth.amp}`,
    trueMax: truth.true_max,
    warmBad: phase.oom_at,
    budgetBytes: limit + CONTEXT,
    run: (probe, warm) => {
      const size = probe.micro_batch;
      if (warm ? size >= phase.oom_at : size > truth.true_max) return { outcome: 'device_oom' };
      const held = Math.min(Math.max(interpolate(reserved, size), interpolate(active, size)), limit - 8 * MIB);
      return {
        outcome: 'fit',
        step_s: interpolate(seconds, size),
        peaks: {
          total_bytes: held + CONTEXT,
          forward_backward_bytes: Math.min(interpolate(active, size), held),
          optimizer_bytes: optimizer,
          reserved_bytes: held,
          resident_bytes: Math.round(optimizer * 0.8),
        },
      };
    },
  };
}

/** Piecewise linear; beyond the ends along the outermost pieces. */
function interpolate(points: readonly (readonly [number, number])[], at: number): number {
  const after = Math.max(
    1,
    points.findIndex(([x]) => x >= at),
  );
  const index = points.some(([x]) => x >= at) ? after : points.length - 1;
  const [x0, y0] = points[index - 1] as readonly [number, number];
  const [x1, y1] = points[index] as readonly [number, number];
  return y0 + ((y1 - y0) / (x1 - x0)) * (at - x0);
}

function lines<T>(name: string): T[] {
  const file = new URL(`../fixtures/curves/${name}.jsonl`, import.meta.url);
  return readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);
}
