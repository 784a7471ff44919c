import { parseSize } from '../../common/size.js';
import type { JobRecord } from '../../contract/job.js';
import type { Recommendation } from '../../contract/recommendation.js';

/**
 * The bytes that a job is held to on a device: as its ledger said (`seen`), as its configuration was verified for, or as
 * written. Null: not known yet, as `80%` says nothing without the device.
 */
export function jobBudget(
  { options }: Pick<JobRecord, 'options'>,
  found: Pick<Recommendation, 'budget_bytes'> | null,
  seen: number | null,
): number | null {
  return seen ?? found?.budget_bytes ?? writtenBudget(options.budget);
}

function writtenBudget(budget: string | null): number | null {
  if (budget === null || budget.trim().endsWith('%')) return null;
  try {
    return parseSize(budget);
  } catch {
    return null; // the host that runs the job says what is wrong with it
  }
}
