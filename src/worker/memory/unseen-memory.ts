import { formatBytes } from '../../common/size.js';
import type { Exit } from '../../contract/launch.js';
import { ledgerPeak } from '../search/observe.js';

/** Interpreters and their libraries take as much without a word of it being the job's. */
const USUAL_BYTES = 512 * 1024 ** 2;

/**
 * What to say of a job on the CPU that had far more in memory than its budget saw, as what a program maps by itself (`mmap`)
 * is not counted; null: nothing.
 */
export function unseenMemory(exit: Exit, budgetBytes: number | null): string | null {
  const { resident_bytes: resident } = exit;
  if (budgetBytes === null || resident === undefined) return null;
  const seen = ledgerPeak(exit.ledger) ?? 0;
  if (resident - seen <= Math.max(budgetBytes, USUAL_BYTES)) return null;
  return `A process of the job had ${formatBytes(resident)} in memory, of which the budget of ${formatBytes(budgetBytes)} saw ${formatBytes(seen)}: what a program maps by itself (mmap) is not counted.`;
}
