import { join } from 'node:path';
import type { LedgerReading } from '../contract/launch.js';
import type { Addon } from './native.js';

/** The ledger in a launch folder as it is now; null when there is none, or when nothing of ours was at work in the job. */
export function readLedger(addon: Addon, dir: string): LedgerReading | null {
  const read = addon.readLedger(join(dir, 'ledger'));
  if (!read || read.claims === 0) return null;
  return {
    devices: read.devices.map(({ device, live_bytes, peak_bytes, overhead_bytes, budget_bytes, measured }) => ({
      device,
      live_bytes,
      peak_bytes,
      overhead_bytes,
      budget_bytes,
      measured_by: measured,
    })),
    refused: read.refused,
    refusals: read.refusals.map(({ pid, api, size_bytes, live_bytes, budget_bytes, by, device, at_ms }) => ({
      pid,
      api,
      size_bytes,
      live_bytes,
      budget_bytes: budget_bytes ?? 0,
      by,
      device,
      at: new Date(at_ms).toISOString(),
    })),
    blind: read.blind !== 0,
  };
}
