import { anatomyOf, curvesOf, sameRung } from '../tuner/index.js';
import type { Config, Observation } from '../tuner/types.js';
import type { MemoryReport } from './types.js';

/** What fills the memory at `config`, from all that a search saw; null: its peak could not be measured. */
export function memoryReport(
  observations: readonly Observation[],
  config: Config,
  budgetBytes: number,
): MemoryReport | null {
  const anatomy = anatomyOf(observations, config, budgetBytes);
  const { amp, checkpointing, offload } = config;
  const onRung = observations.filter((o) => sameRung(o.rung, { amp, checkpointing, offload }));
  const [curve] = curvesOf(onRung, budgetBytes);
  if (anatomy === null || curve === undefined) return null;
  const { line } = curve;
  return {
    ...anatomy,
    curve: {
      fits: curve.fits.map(([micro_batch, peak_bytes]) => ({ micro_batch, peak_bytes })),
      out_of_memory: curve.failed,
      prediction:
        line === null ? null : { base_bytes: Math.round(line.base), bytes_per_sample: Math.round(line.slope) },
    },
  };
}
