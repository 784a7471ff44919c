import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import { ledgerPeak } from '../search/observe.js';

/** What a launch that ran out of memory held and asked for, in bytes: so much has to be free for it. Null: unknown. */
export function neededBytes(exit: Exit, { memory, fields }: Diagnosis): number | null {
  const held = Math.max(ledgerPeak(exit.ledger) ?? 0, memory?.process_bytes ?? 0);
  return held === 0 ? null : held + (fields.tried_bytes ?? 0);
}
