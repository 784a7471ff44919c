import { join } from 'node:path';
import type { LedgerReading } from '../contract/launch.js';
import type { Addon } from './native.js';

/** The ledger of a launch folder; null: there is none, or none of our libraries ran in the job. */
export function readLedger(addon: Addon, dir: string): LedgerReading | null {
  const read = addon.readLedger(join(dir, 'ledger'));
  if (!read || read.claims === 0) return null;
  return {
    devices: read.devices.map(({ measured, refused: _refused, kinds: _kinds, ...device }) => ({
      ...device,
      measured_by: measured,
    })),
    refused: read.refused,
    refusals: read.refusals.map(({ tid: _tid, budget_bytes, at_ms, ...refusal }) => ({
      ...refusal,
      budget_bytes: budget_bytes ?? 0,
      at: new Date(at_ms).toISOString(),
    })),
    blind: read.blind !== 0,
  };
}
