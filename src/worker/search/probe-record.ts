import type { Observation, ProbeRecord } from '../../contract/measurement.js';
import { shown } from '../../contract/rung.js';

/** An observation as reports and records show it. */
export function probeRecord(observation: Observation, why?: string): ProbeRecord {
  return {
    launch: observation.launch,
    ...(observation.life === undefined ? {} : { life: observation.life }),
    micro_batch: observation.micro_batch,
    ...shown({ ...observation.rung, expandable_segments: observation.expandable_segments }),
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
