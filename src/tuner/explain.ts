import { formatBytes } from '../common/size.js';
import { peakBytes } from './peaks.js';
import type { Action, Config, Observation, Rung } from './types.js';

/** `bf16, checkpointing`; the first rung is `as it stands`. */
export function rungName(rung: Rung): string {
  const knobs = [
    ...(rung.amp === 'off' ? [] : [rung.amp]),
    ...(rung.checkpointing ? ['checkpointing'] : []),
    ...(rung.offload ? ['activations in host memory'] : []),
  ];
  return knobs.length > 0 ? knobs.join(', ') : 'as it stands';
}

/** One sentence for a person: what was asked for, and why; or what came of it. */
export function explainStep(step: Action | Observation, budgetBytes: number | null = null): string {
  return 'type' in step ? explainAction(step) : explainObservation(step, budgetBytes);
}

function explainAction(action: Action): string {
  switch (action.type) {
    case 'probe': {
      const { probe } = action;
      const where = probe.fresh ? ', in a fresh process' : '';
      return `Try micro-batch ${probe.microBatch} (${rungName(probe.rung)})${where}: ${probe.why}.`;
    }
    case 'found': {
      const { config, maxMicroBatch, notes } = action.answer;
      return [`Use ${configName(config)}; the largest micro-batch that fits is ${maxMicroBatch}.`, ...notes].join(' ');
    }
    case 'exhausted':
      return action.cause === 'growth' ? `${action.why}.` : `Nothing fits: ${action.why}.`;
    case 'failed':
      return `The job failed for another reason than its batch (${action.failure})${quote(action.evidence)}.`;
  }
}

function explainObservation(o: Observation, budgetBytes: number | null): string {
  const what = `Micro-batch ${o.microBatch} (${rungName(o.rung)})`;
  if (o.outcome !== 'fit') {
    const when = o.phase === null || o.phase === 'unknown' || o.phase === 'train' ? '' : ` during ${o.phase}`;
    const verdict =
      o.outcome === 'device_oom'
        ? o.ambiguous
          ? 'probably ran out of memory'
          : 'ran out of memory'
        : `failed: ${o.outcome}`;
    return `${what} ${verdict}${when}${quote(o.evidence)}.`;
  }
  const peak = peakBytes(o.peaks);
  const memory =
    peak === null ? '' : `, peak ${formatBytes(peak)}${budgetBytes === null ? '' : ` of ${formatBytes(budgetBytes)}`}`;
  const rate = o.stepSeconds ? `, ${round((o.microBatch * o.accumulation) / o.stepSeconds)} samples/s` : '';
  const retries = o.allocRetries > 0 ? `, but the allocator had to retry ${o.allocRetries} times` : '';
  return `${what} fits for ${o.steps} steps${memory}${rate}${retries}.`;
}

function configName(config: Config): string {
  const { micro_batch, accumulation, world_size, effective_batch } = config;
  const product = [micro_batch, accumulation, world_size].join(' x ');
  return `micro-batch ${micro_batch}, accumulation ${accumulation} (${product} = ${effective_batch}), ${rungName({ amp: config.amp, checkpointing: config.checkpointing, ...(config.offload ? { offload: true } : {}) })}`;
}

function quote(evidence: string | null): string {
  return evidence === null ? '' : ` ("${evidence}")`;
}

function round(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
