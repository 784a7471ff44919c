import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Loop } from '../../contract/hook.js';
import type { Observation } from '../../contract/measurement.js';
import type { Cut } from '../../contract/rung.js';
import type { Action } from '../../tuner/types.js';
import type { WorkRequest } from '../types.js';

/** What a search came to. */
export interface SearchOutcome {
  action: Exclude<Action, { type: 'probe' }>;
  observations: readonly Observation[];
  launches: number;
  /** Every launch that was begun, those of an earlier process included. */
  allLaunches: WorkRequest['launches'];
  /** Seconds from the first launch to its training loop; null where no hook could tell. */
  startupSeconds: number | null;
  torch: string | null;
  /** Where the hook cut the batches that it measured; null: nowhere. */
  cut: Cut | null;
  /** What the script's own loop asked for, as the hook saw it. */
  loop: Loop | null;
  /** The script ran, but took no batch from us: it is no training loop that can be tuned. */
  undriveable: boolean;
  /** Why each size was tried, in the order of `observations`; null: it was tried by an earlier process. */
  whys: readonly (string | null)[];
  /** Sentences on rungs that were left out. */
  notes: string[];
  /** Verdict on the last launch that died; null when none did. */
  diagnosis: Diagnosis | null;
}
