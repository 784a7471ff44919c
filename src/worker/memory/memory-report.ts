import { formatBytes, parseSize } from '../../common/size.js';
import type { PartSize } from '../../contract/http.js';
import type { JobRecord } from '../../contract/job.js';
import type { MemoryBreakdown, Observation } from '../../contract/measurement.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { MemoryReport } from '../../contract/reports.js';
import { type Config, sameRung } from '../../contract/rung.js';
import { breakdownOf, curvesOf, PARTS, peakBytes } from '../../tuner/index.js';

export type Part = (typeof PARTS)[number];

const nameOf = (part: Part): string => (part === 'rest' ? 'the rest' : part.replaceAll('_', ' '));

/** The known, non-zero parts in the order of drawing. */
export function partsOf(memory: MemoryBreakdown): PartSize[] {
  return PARTS.flatMap((part) => {
    const bytes = memory[part];
    if (bytes === null || bytes === 0) return [];
    const slope = part === 'activations' ? memory.activations_per_sample : null;
    return [{ part, name: nameOf(part), bytes, remark: slope === null ? '' : `${formatBytes(slope)} a sample` }];
  });
}

/** The parts of the memory at `config`, from all observations; null: no peak was measured. */
export function memoryReport(
  observations: readonly Observation[],
  config: Config,
  budgetBytes: number,
): MemoryReport | null {
  const breakdown = breakdownOf(observations, config, budgetBytes);
  const onRung = observations.filter((o) => sameRung(o.rung, config));
  const [curve] = curvesOf(onRung, budgetBytes);
  if (breakdown === null || curve === undefined) return null;
  const { line } = curve;
  return {
    ...breakdown,
    curve: {
      fits: curve.fits.map(([micro_batch, peak_bytes]) => ({ micro_batch, peak_bytes })),
      out_of_memory: curve.failed,
      prediction:
        line === null ? null : { base_bytes: Math.round(line.base), bytes_per_sample: Math.round(line.slope) },
    },
  };
}

/** What fills a job's memory at its size, else at the largest that fitted on its rung, or on the last. Null: no peak is known. */
export function jobMemory(
  { config, journal }: Pick<JobRecord, 'config' | 'journal'>,
  budgetBytes: number | null,
): MemoryReport | null {
  const budget = budgetBytes ?? Number.POSITIVE_INFINITY;
  const own = config === null ? null : memoryReport(journal, config, budget);
  if (own !== null) return own;
  const fits = journal.filter(({ outcome, peaks }) => outcome === 'fit' && peakBytes(peaks) !== null);
  const rung = config ?? fits.at(-1)?.rung;
  const onRung = rung === undefined ? [] : fits.filter((one) => sameRung(one.rung, rung));
  const largest = onRung.toSorted((a, b) => a.micro_batch - b.micro_batch).at(-1);
  if (largest === undefined) return null;
  const { micro_batch, accumulation } = largest;
  const product = { micro_batch, accumulation, world_size: 1, effective_batch: micro_batch * accumulation };
  return memoryReport(journal, { ...largest.rung, ...product }, budget);
}

/** A job's budget in bytes: its ledger's (`seen`), its record's, its configuration's, or as written; null: `80%` of an unknown device. */
export function jobBudget(
  { options, budget_bytes: noted }: Pick<JobRecord, 'options' | 'budget_bytes'>,
  found: Pick<Recommendation, 'budget_bytes'> | null,
  seen: number | null,
): number | null {
  return seen ?? noted ?? found?.budget_bytes ?? writtenBudget(options.budget);
}

function writtenBudget(budget: string | null): number | null {
  if (budget === null || budget.trim().endsWith('%')) return null;
  try {
    return parseSize(budget);
  } catch {
    return null; // the host that runs the job says what is wrong with it
  }
}
