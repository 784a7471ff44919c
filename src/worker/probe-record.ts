import type { ProbeRecord } from '../store/types.js';
import type { Observation } from '../tuner/types.js';

/** An observation as reports and records show it. */
export function probeRecord(observation: Observation, why?: string): ProbeRecord {
  return {
    launch: observation.launch,
    micro_batch: observation.microBatch,
    amp: observation.rung.amp,
    checkpointing: observation.rung.checkpointing,
    ...(observation.rung.offload ? { offload: true } : {}),
    ...(observation.expandable ? { expandable_segments: true } : {}),
    steps: observation.steps,
    outcome: observation.outcome,
    peak_bytes: observation.peaks.totalBytes,
    step_s: observation.stepSeconds,
    samples_per_s: observation.samplesPerSecond ?? null,
    wall_s: observation.wallSeconds,
    evidence: observation.evidence,
    ...(why === undefined ? {} : { why }),
  };
}
