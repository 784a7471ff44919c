import type { Measured } from '../../contract/hook.js';
import type { Probe } from '../../contract/measurement.js';
import { leavesRoomForPieces } from '../../tuner/index.js';

/** All ranks' measurements of a probe in one: maxima of peaks and times. */
export type Measurement = Omit<Measured, 't'>;

/** Fields whose minimum over the ranks counts. */
const LEAST = new Set(['steps', 'quiet_steps']);
/** Fields taken from the first rank: what was asked for, and what the script does by itself. */
const FIRST = new Set(['micro_batch', 'accumulation', 'own_accumulation', 'own_amp']);

/** So little is free, as a part of the budget and in bytes, where a caching allocator has no room for another two of its pages. */
const FULL = { part: 0.005, bytes: 40 * 1024 ** 2 };
/** Steps after which it is looked at whether there is room for what lies in pieces: no later one makes more of it. */
const LOOK = 10;

/** Combines the ranks' measurements (at least one): the worst rank decides. */
export function worstRank(ranks: Measured[]): Measurement {
  const slowest = ranks.reduce((a, b) => (sum(b.step_s) > sum(a.step_s) ? b : a));
  const names = new Set(ranks.flatMap((rank) => Object.keys(rank) as (keyof Measured)[]));
  const valuesOf = (name: keyof Measured): unknown[] => ranks.map((rank) => rank[name]);
  const worst = [...names].map((name) => [name, worstOf(name, valuesOf(name))]);
  // One that grows for another reason grows for ever.
  const growing = ranks.filter((rank) => (rank.growth_bytes_per_step ?? 0) > 0);
  const withShapes = growing.length > 0 && growing.every((rank) => rank.grows_with_shapes === true);
  return {
    ...Object.fromEntries(worst),
    step_s: slowest.step_s,
    ...(names.has('grows_with_shapes') ? { grows_with_shapes: withShapes } : {}),
  };
}

function worstOf(name: string, values: unknown[]): unknown {
  if (FIRST.has(name)) return values[0];
  const numbers = values.filter((value) => typeof value === 'number');
  if (numbers.length > 0) return LEAST.has(name) ? Math.min(...numbers) : Math.max(...numbers);
  return values.find(Boolean) ?? values.find((value) => value !== undefined) ?? null;
}

const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0);

/** The most steps to wait for the allocator to come to rest, unless the probe says otherwise. */
const MOST_STEPS = 30;

/** Further steps that a probe needs before its memory is known; 0: none. What a launch measures by itself is no longer than the options say. */
export function stepsToGo(probe: Probe, measurement: Measurement): number {
  return Math.max(
    probe.steps - measurement.steps,
    stepsToRest(probe, measurement),
    stepsToDoubt(probe, measurement),
    stepsToSpread(probe, measurement),
    stepsToLast(probe, measurement),
  );
}

/** Until the highest of steps whose peaks vary was seen, or next to it. */
function stepsToSpread(
  probe: Probe,
  { spread_bytes: spread, steps, workspaces_refused: refused }: Measurement,
): number {
  // What a library is refused differs from step to step: it says nothing of what the samples take.
  return (spread ?? 0) > probe.spread_bytes && !refused ? Math.max(0, probe.spread_steps - steps) : 0;
}

/**
 * Where the allocator gives back its cache in a steady step, how the pieces lie decides, and lies anew in the next: of the sizes that PyTorch-GAN's
 * programs ran for three steps, some ran out of memory within ten (bench/results/upstream.md). One that may be the answer has to last them.
 */
function stepsToLast(probe: Probe, measurement: Measurement): number {
  const { alloc_retries: retries, reserved_bytes: reserved, total_bytes: total, steps } = measurement;
  // So nearly full it will give it back before long.
  const least = Math.min(FULL.part * probe.budget_bytes, FULL.bytes);
  const isFull = reserved !== null && probe.budget_bytes - (total ?? 0) < least;
  if (!retries && !isFull) return 0;
  if (steps < LOOK) return Math.min(LOOK, probe.retry_steps) - steps;
  const isDecided =
    leavesRoomForPieces(measurement, probe.budget_bytes) === false ||
    leavesRoomForPieces(measurement, probe.budget_bytes, true);
  return isDecided ? 0 : probe.retry_steps - steps;
}

/** Until growth by each step can be told from memory that is allocated once, and what goes on for ever from what comes to an end. */
function stepsToDoubt(probe: Probe, { growth_bytes_per_step: growth, steps, total_bytes: total }: Measurement): number {
  const left = growth ?? 0;
  if (left > probe.growth_bytes && steps < probe.growth_steps) return probe.growth_steps - steps;
  const more = Math.max(0, probe.leak_steps - steps);
  return left > probe.leak_bytes && (total ?? 0) + left * more <= probe.budget_bytes ? more : 0;
}

/** Until its caching allocator may have rested long enough. */
function stepsToRest(probe: Probe, measurement: Measurement): number {
  const { quiet_steps: quiet, steps, workspaces_refused: refused, alloc_retries: retries } = measurement;
  const { rest_steps: restSteps, rest_within: patience = MOST_STEPS } = probe;
  // A library that was refused its workspace asks for it in every step: there is no rest to wait for.
  if (quiet === null || quiet === undefined || quiet >= restSteps || refused) return 0;
  const within = retries ? patience : MOST_STEPS;
  return Math.max(0, Math.min(restSteps - quiet, within - steps));
}

/** Whether the caching allocator still allocated, or emptied its cache, at the end of a probe. */
export function isRestless(
  { rest_steps: restSteps }: Pick<Probe, 'rest_steps'>,
  { quiet_steps: quiet }: Pick<Measurement, 'quiet_steps'>,
): boolean {
  return typeof quiet === 'number' && quiet < restSteps;
}

/** Bytes by which memory goes on rising each step: what the loop keeps, and what a restless allocator takes; null: not measured. */
export function growthPerStep(
  { rest_steps: restSteps }: Pick<Probe, 'rest_steps'>,
  measurement: Measurement,
): number | null {
  const { growth_bytes_per_step: left, creep_bytes_per_step: creep, alloc_retries: retries } = measurement;
  // What an allocator takes that gives back its cache where it has to says nothing of what is needed.
  const restless = isRestless({ rest_steps: restSteps }, measurement) && !retries;
  if (typeof left !== 'number' && !restless) return null;
  return Math.max(0, left ?? 0, restless ? (creep ?? 0) : 0);
}
