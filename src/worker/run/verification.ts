import { formatBytes } from '../../common/size.js';
import { asRecord, type Observation, type Probe, type ProbeRecord } from '../../contract/measurement.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { rungOf, sameRung } from '../../contract/rung.js';
import { KINDS } from '../../devices/index.js';
import { doubtOf } from '../../tuner/index.js';
import type { Session } from '../launch/session.js';
import { Prober } from '../search/prober.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { type Choice, configFrom, type OwnBatch, ownOf } from './reuse.js';

/** How far a peak of the same size and rung may be off, relatively, to count as the same memory. */
const SAME_MEMORY = 0.05;
/** Steps to run under a caching allocator, the last of which may need no new segment. */
export const CACHING = { steps: 10, restSteps: 8 };

export interface Verification {
  /** Null: the record does not hold for this command. */
  choice: Choice | null;
  own: OwnBatch;
  /** Observations for a search that has to follow. */
  journal: Observation[];
  launches: WorkRequest['launches'];
  /** The command came to its training loop. */
  sawTraining: boolean;
}

/** Probes whether a record made for other words of the command holds: a learning rate does not change the memory, a width does. */
export async function verify(
  request: WorkRequest,
  deps: WorkDeps,
  target: Target,
  recorded: Recommendation,
  spare: Session | null = null,
): Promise<Verification> {
  const prober = new Prober(request, deps, target, 'keep', spare);
  const stop = (): void => prober.interrupt();
  deps.signal.addEventListener('abort', stop);
  try {
    deps.signal.throwIfAborted();
    await prober.begin(rungOf(recorded), recorded.expandable_segments);
    const { loop } = prober.facts;
    const own = ownOf(target, loop);
    const first = configFrom(recorded, target.needs(own), request.options);
    const none = { choice: null, own, journal: [], launches: prober.launches, sawTraining: loop !== null };
    if (first === null) return none;
    const observation = await prober.measure(probeOf(first, target, request.options.steps));
    deps.signal.throwIfAborted();
    deps.progress({ type: 'probe', observation, record: asRecord(observation, WHY) });
    if (!['fit', 'device_oom'].includes(observation.outcome)) return none;
    const learned = ownOf(target, prober.facts.loop);
    const choice = configFrom(recorded, target.needs(learned), request.options);
    const note = holds(recorded, observation);
    const same = choice !== null && choice.config.micro_batch === observation.micro_batch;
    if (note === null || !same) return { ...none, journal: [observation] };
    return { ...none, own: learned, choice: { ...choice, notes: [note, ...choice.notes] } };
  } finally {
    deps.signal.removeEventListener('abort', stop);
    await prober.close();
  }
}

const WHY = 'recorded under this name for other flags: one probe tells whether it holds for these';

function probeOf({ config }: Choice, target: Target, steps: number): Probe {
  const parts = config.accumulation / target.loopAccumulation;
  const caching = KINDS[target.kind].cachingAllocator ? CACHING : { steps: 0, restSteps: 0 };
  return {
    rung: rungOf(config),
    micro_batch: config.micro_batch,
    accumulation: parts > 1 ? 2 : 1, // as in a search: with more than one part the gradients wait
    ...(parts > 1 ? { batch: config.micro_batch * parts } : {}),
    steps: Math.max(steps, caching.steps),
    rest_steps: caching.restSteps,
    ...doubtOf(target.budgetBytes),
    fresh: true,
    ...(config.expandable_segments ? { expandable_segments: true } : {}),
    purpose: 'verify',
    why: WHY,
  };
}

/** Why the record holds; null: it does not, or another size would now be right. */
function holds(recorded: Recommendation, observation: Observation): string | null {
  if (observation.outcome !== 'fit') return null;
  return isSameMemory(recorded, observation) ? holdsNote('One probe', observation) : null;
}

/** Whether it takes what the record says of its size. */
export function isSameMemory({ probes }: Recommendation, observation: Observation): boolean {
  const peak = observation.peaks.total_bytes;
  const expected = expectedPeak(probes, observation);
  return peak === null || expected === null || Math.abs(peak / expected - 1) <= SAME_MEMORY;
}

/** `what`: it was shown by that. */
export function holdsNote(what: string, { micro_batch, peaks }: Observation): string {
  const measured = peaks.total_bytes === null ? '' : `, peak ${formatBytes(peaks.total_bytes)}`;
  return `${what} shows that what was recorded for other flags of this name holds for these, too (micro-batch ${micro_batch}${measured}).`;
}

/** The record's peak at this size in bytes, interpolated between measured sizes. */
export function expectedPeak(
  probes: readonly ProbeRecord[],
  { rung, micro_batch: microBatch }: Pick<Observation, 'rung' | 'micro_batch'>,
): number | null {
  const points = probes
    .filter((one) => one.outcome === 'fit' && one.peak_bytes !== null && sameRung(rungOf(one), rung))
    .map((one) => ({ size: one.micro_batch, peak: one.peak_bytes as number }))
    .sort((a, b) => a.size - b.size || a.peak - b.peak);
  const below = points.findLast(({ size }) => size <= microBatch);
  const above = points.find(({ size }) => size >= microBatch);
  if (below === undefined || above === undefined) return null;
  if (below.size === above.size || below.size === microBatch) return below.peak;
  const part = (microBatch - below.size) / (above.size - below.size);
  return below.peak + part * (above.peak - below.peak);
}
