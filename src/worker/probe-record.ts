import type { ProbeRecord } from '../store/types.js';
import type { Observation } from '../tuner/types.js';

/** An observation as reports and records show it. */
export function probeRecord(observation: Observation, why?: string): ProbeRecord {
  return {
    launch: observation.launch,
    micro_batch: observation.micro_batch,
    amp: observation.rung.amp,
    checkpointing: observation.rung.checkpointing,
    ...(observation.rung.offload ? { offload: true } : {}),
    ...(observation.expandable_segments ? { expandable_segments: true } : {}),
    steps: observation.steps,
    outcome: observation.outcome,
    peak_bytes: observation.peaks.total_bytes,
    step_s: observation.step_s,
    samples_per_s: observation.samples_per_s ?? null,
    wall_s: observation.wall_s,
    evidence: observation.evidence,
    ...(why === undefined ? {} : { why }),
  };
}
