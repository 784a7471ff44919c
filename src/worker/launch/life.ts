import { constants } from 'node:os';
import type { Died } from '../../contract/hook.js';
import { type Exit, type LedgerReading, unseenEnd } from '../../contract/launch.js';

/** The ledger of a launch since `then`, the start of a life. */
export function sinceThen(now: LedgerReading | null, then: LedgerReading | null): LedgerReading | null {
  if (now === null || then === null) return now;
  const earlier = new Set(then.refusals.map(({ at, pid }) => `${at} ${pid}`));
  const refusals = now.refusals.filter(({ at, pid }) => !earlier.has(`${at} ${pid}`));
  return {
    ...now,
    refused: now.refused - then.refused,
    refusals,
    // The launch's highest figure is never set back: where this life did not raise it, its refusals alone tell.
    devices: now.devices.map((device, at) => {
      if (device.peak_bytes > (then.devices[at]?.peak_bytes ?? 0)) return device;
      const refusedAt = refusals.filter((one) => one.device === device.device).map((one) => one.live_bytes);
      return { ...device, peak_bytes: Math.max(0, ...refusedAt) };
    }),
  };
}

/** The end of a life whose launch goes on. */
export function exitOf({ code, signal }: Died, startedAt: number, ledger: LedgerReading | null): Exit {
  const end = unseenEnd('job', new Date(startedAt).toISOString());
  return { ...end, code, signal: signal === null ? null : nameOf(signal), ledger };
}

function nameOf(signal: number): string {
  return Object.entries(constants.signals).find(([, number]) => number === signal)?.[0] ?? `SIG${signal}`;
}
