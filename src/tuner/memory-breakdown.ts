import type { MemoryBreakdown, Observation } from '../contract/measurement.js';
import { type Config, sameRung } from '../contract/rung.js';
import { pointsOf } from './curve-point.js';
import { MemoryModel } from './model.js';
import { peakBytes } from './peaks.js';
/** Names of the parts that add up to the peak, in the order in which they are drawn. */
export const PARTS = [
  'parameters',
  'gradients',
  'optimizer_state',
  'activations',
  'allocator_slack',
  'context',
  'rest',
] as const;

/**
 * Takes the peak of a configuration apart. Gradients are made as activations are freed, so a peak in mid-backward has not
 * all of both: `activations` is then what is left beside all gradients. Null: no probe of the configuration fitted with
 * a peak that could be measured.
 */
export function breakdownOf(
  observations: readonly Observation[],
  config: Config,
  budgetBytes: number,
): MemoryBreakdown | null {
  const onRung = observations.filter((o) => sameRung(o.rung, config));
  const observation = representative(onRung, config);
  if (observation === null) return null;
  const { peaks, micro_batch: microBatch } = observation;
  const total = peakBytes(peaks) as number;
  const slope = new MemoryModel(pointsOf(onRung), budgetBytes).bytesPerSample;
  const perSample = slope === null ? null : Math.max(0, Math.round(slope));
  const forwardBackward = peaks.forward_backward_bytes;
  const optimizer = peaks.optimizer_bytes ?? 0;
  const inOptimizer = forwardBackward !== null && optimizer > forwardBackward;
  const allocated = forwardBackward === null ? null : Math.max(forwardBackward, optimizer);
  const reserved = peaks.reserved_bytes || null;

  let left = total;
  /** Cuts a part off what is left of the peak: peaks of different counters may be some bytes apart. */
  const cut = (bytes: number | null | undefined): number | null => {
    if (bytes === null || bytes === undefined) return null;
    const part = Math.min(Math.max(0, Math.round(bytes)), left);
    left -= part;
    return part;
  };
  const context = cut(reserved === null || peaks.total_bytes === null ? null : total - reserved);
  const slack = cut(reserved === null || allocated === null ? null : reserved - allocated);
  const parameters = cut(peaks.parameter_bytes);
  const state = cut(peaks.optimizer_state_bytes);
  const gradients = cut(peaks.gradient_bytes);
  // In the optimizer's step the activations are gone.
  const activations = cut(inOptimizer ? 0 : perSample === null ? null : perSample * microBatch);
  return {
    micro_batch: microBatch,
    accumulation: observation.accumulation,
    peak_bytes: total,
    peak_in: forwardBackward === null ? null : inOptimizer ? 'optimizer' : 'forward_backward',
    parameters,
    gradients,
    optimizer_state: state,
    activations,
    activations_per_sample: perSample,
    allocator_slack: slack,
    context,
    rest: left,
  };
}

/** The probe that speaks for the configuration: the highest peak that a fresh process showed, else the highest at all. */
function representative(onRung: readonly Observation[], config: Config): Observation | null {
  const fits = onRung.filter(
    (o) => o.outcome === 'fit' && o.micro_batch === config.micro_batch && peakBytes(o.peaks) !== null,
  );
  // Gradients that wait for more micro-batches are a part of the peak wherever the answer accumulates.
  const alike = fits.filter((o) => o.accumulation > 1 || config.accumulation === 1);
  const told = alike.length > 0 ? alike : fits;
  const fresh = told.filter((o) => o.fresh);
  const candidates = fresh.length > 0 ? fresh : told;
  const peak = (o: Observation): number => peakBytes(o.peaks) as number;
  return candidates.reduce<Observation | null>((best, o) => (best && peak(best) >= peak(o) ? best : o), null);
}
