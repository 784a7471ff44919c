import { usageError } from './errors.js';

/** Options of `daemon start` and `daemon run`. */
export function daemonOptions(values: Record<string, unknown>): { cpuLanes?: number; allowInsecureRedis: boolean } {
  const allowInsecureRedis = Boolean(values.allowInsecureRedis);
  const lanes = values.cpuLanes;
  if (lanes === undefined) return { allowInsecureRedis };
  if (!/^\d{1,4}$/.test(String(lanes)) || Number(lanes) < 1) {
    throw usageError(
      `Expected --cpu-lanes to be a whole number of at least 1, got "${lanes}".`,
      'Write how many jobs may run at a time with --device cpu.',
    );
  }
  return { cpuLanes: Number(lanes), allowInsecureRedis };
}
