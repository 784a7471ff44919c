import { lifeOf, type Observation, type Peaks, type Probe } from '../../src/contract/measurement.js';
import type { Rung } from '../../src/contract/rung.js';
import { Tuner } from '../../src/tuner/index.js';
import type { Action, Answer, Constraints } from '../../src/tuner/types.js';

export const GIB = 1024 ** 3;
export const MIB = 1024 ** 2;
export type { Constraints };
export const AS_IT_STANDS: Rung = { amp: 'off', checkpointing: false };

/** A job as the tuner can see it: what a probe costs and whether it fits. */
export interface Job {
  /** `warm`: the process has run other sizes before. */
  run(probe: Probe, warm: boolean): Result;
}

export interface Result {
  outcome: Observation['outcome'];
  peaks?: Partial<Peaks>;
  /** Where it ran for more than the probe asked for. */
  steps?: number;
  /** Where it had too few samples. */
  begin_at?: number;
  short?: boolean;
  step_s?: number | null;
  alloc_retries?: number;
  flexible_workspaces?: boolean;
  workspaces_refused?: boolean;
  restless?: boolean;
  rise_bytes_per_step?: number;
  growth_bytes_per_step?: number;
  grows_with_shapes?: boolean;
  spread_bytes?: number;
  excess_bytes?: number;
  blocks?: Observation['blocks'];
  refused_bytes?: number;
  unallocated_bytes?: number;
  free_bytes?: number;
  phase?: Observation['phase'];
  ambiguous?: boolean;
  evidence?: string | null;
}

export function constraints(patch: Partial<Constraints> = {}): Constraints {
  return {
    rungs: [AS_IT_STANDS],
    minBatch: 1,
    maxBatch: null,
    effectiveBatch: null,
    worldSize: 1,
    accumulation: 'auto',
    objective: 'max-batch',
    headroomPct: 3,
    budgetBytes: 24 * GIB,
    steps: 3,
    driven: true,
    switches: true,
    maxLaunches: null,
    ownBatch: null,
    goal: 'search',
    knownBad: null,
    ...patch,
  };
}

export interface Search {
  last: Exclude<Action, { type: 'probe' }>;
  probes: Probe[];
  observations: Observation[];
  launches: number;
  oomLaunches: number;
}

/**
 * Lets a tuner search a job as a worker would: one process after the other, several probes in each unless
 * `perLaunch`; an OOM ends the process. With `forks` every process but the first is a fork of the only launch.
 */
export function search(job: Job, c: Constraints, perLaunch = false, most = 400, forks = false): Search {
  const tuner = new Tuner(c);
  const probes: Probe[] = [];
  let launch = 0;
  let life = 0;
  let alive = false;
  let grown = false;
  let oomLaunches = 0;
  for (let i = 0; i < most; i += 1) {
    const action = tuner.next();
    if (action.type !== 'probe') {
      return { last: action, probes, observations: [...tuner.observations], launches: launch, oomLaunches };
    }
    const { probe } = action;
    const fresh = probe.fresh || !alive || (probe.expandable_segments ?? false) !== grown;
    grown = probe.expandable_segments ?? false;
    if (fresh) life += 1;
    if (fresh && !(forks && launch > 0)) launch += 1;
    const result = job.run(probe, !fresh);
    alive = result.outcome === 'fit' && !perLaunch;
    if (result.outcome === 'device_oom') oomLaunches += 1;
    probes.push(probe);
    const seen = observationOf(probe, result, launch, fresh, alive);
    tuner.tell(forks ? { ...seen, life, renewable: true } : seen);
  }
  throw new Error(`The search did not end: ${probes.slice(-12).map((p) => p.micro_batch)}`);
}

function observationOf(probe: Probe, result: Result, launch: number, fresh: boolean, alive: boolean): Observation {
  const fit = result.outcome === 'fit';
  return {
    rung: probe.rung,
    micro_batch: probe.micro_batch,
    accumulation: probe.accumulation,
    launch,
    fresh,
    steps: result.steps ?? probe.steps,
    ...(result.short ? { short: true } : {}),
    ...(result.begin_at === undefined ? {} : { begin_at: result.begin_at }),
    outcome: result.outcome,
    ambiguous: result.ambiguous ?? false,
    phase: fit ? null : (result.phase ?? 'train'),
    peaks: {
      total_bytes: null,
      forward_backward_bytes: null,
      optimizer_bytes: null,
      reserved_bytes: null,
      resident_bytes: null,
      gradient_bytes: null,
      ...result.peaks,
    },
    alloc_retries: result.alloc_retries ?? 0,
    ...(result.flexible_workspaces ? { flexible_workspaces: true } : {}),
    ...(result.workspaces_refused ? { workspaces_refused: true } : {}),
    ...(result.restless ? { restless: true } : {}),
    ...(result.blocks === undefined ? {} : { blocks: result.blocks }),
    rise_bytes_per_step: result.rise_bytes_per_step ?? null,
    growth_bytes_per_step: result.growth_bytes_per_step ?? null,
    ...(result.grows_with_shapes ? { grows_with_shapes: true } : {}),
    ...(result.spread_bytes === undefined ? {} : { spread_bytes: result.spread_bytes }),
    ...(result.excess_bytes === undefined ? {} : { excess_bytes: result.excess_bytes }),
    step_s: fit ? (result.step_s ?? null) : null,
    refused_bytes: result.refused_bytes ?? null,
    unallocated_bytes: result.unallocated_bytes ?? null,
    free_bytes: result.free_bytes ?? null,
    ...(probe.expandable_segments ? { expandable_segments: true } : {}),
    evidence: fit ? null : (result.evidence ?? `out of memory at ${probe.micro_batch}`),
    alive,
  };
}

/** The sizes that a search has tried. */
export function sizesOf(s: Search): Set<number> {
  return new Set(s.probes.map((probe) => probe.micro_batch));
}

/** The most sizes that one process was asked for. */
export function mostSizes(s: Search): number {
  const lives = new Set(s.observations.map(lifeOf));
  const sizes = (life: number) => s.observations.filter((o) => lifeOf(o) === life).map((o) => o.micro_batch);
  return Math.max(...[...lives].map((life) => new Set(sizes(life)).size));
}

export function found(s: Search): Answer {
  if (s.last.type !== 'found') throw new Error(`Expected an answer, got ${JSON.stringify(s.last)}`);
  return s.last.answer;
}

/** Host memory: what is counted is exactly what is allocated; total = base + max(phases). */
export function ledgerJob(shape: {
  resident: number;
  perSample: number;
  optimizer: number;
  budget: number;
  gradients?: number;
  /** Extra bytes at a size: kinks, steps, workspaces. */
  extra?: (size: number) => number;
  phases?: boolean;
  telemetry?: boolean;
  rate?: (size: number) => number;
  /** What amp and checkpointing leave of the activations. */
  factor?: (rung: Rung) => number;
}): Job & { peak(size: number, accumulation?: number, rung?: Rung): number } {
  const active = (size: number, accumulation: number, rung: Rung) =>
    shape.resident +
    size * shape.perSample * (shape.factor?.(rung) ?? 1) +
    (accumulation > 1 ? (shape.gradients ?? 0) : 0) +
    (shape.extra?.(size) ?? 0);
  const flat = shape.resident + shape.optimizer;
  const peak = (size: number, accumulation = 1, rung = AS_IT_STANDS) =>
    Math.max(active(size, accumulation, rung), flat);
  return {
    peak,
    run: (probe) => {
      const total = peak(probe.micro_batch, probe.accumulation, probe.rung);
      if (total > shape.budget) return { outcome: 'device_oom' };
      const phased = shape.phases ?? true;
      return {
        outcome: 'fit',
        step_s: shape.rate ? (probe.micro_batch * probe.accumulation) / shape.rate(probe.micro_batch) : null,
        peaks:
          shape.telemetry === false
            ? {}
            : {
                total_bytes: total,
                forward_backward_bytes: phased ? active(probe.micro_batch, probe.accumulation, probe.rung) : null,
                optimizer_bytes: phased ? flat : null,
                resident_bytes: phased ? shape.resident : null,
              },
      };
    },
  };
}
