import type { NextSize, SearchState } from './search-state.js';
import { closingSize, nearEnoughTo } from './sizes.js';

/** From this part of what libraries that do with less leave room for on, the line of the peaks tells it as well. */
const SAME = 0.98;
/** Where each fresh process is a start: from this part on. */
const SAME_FOR_A_START = 0.9;
/** What is needed is a line from so early on: part of the limit by the peaks. */
const SEEN = 0.2;
/** Parts of what is likely to fit that are tried, one after the other, until one fits; where none does, the line of the peaks is believed instead. */
const PARTS = [0.98, 0.955, 0.93];

/**
 * The size that fits if libraries do with the least of workspace, where that is more than the peaks promise: what a step needs is a line of which two
 * sizes tell the end (under 3 GiB of an H200 acgan of PyTorch-GAN needs 1.9 MiB a sample and takes 8.1). Null: it was tried, or is not known.
 */
export function withLessWorkspace({ history, model, sizes }: SearchState): NextSize | null {
  const { top, ceiling } = history;
  const { likely, possible, lower } = model;
  if (!model.grown || !model.flexible || top === null || likely === null || possible === null || lower === null)
    return null;
  const same = history.forks ? SAME : SAME_FOR_A_START;
  // Peaks that workspace has filled the budget with rise no more, and promise what cannot be.
  const promised = Math.max(lower <= possible ? lower : 0, closingSize(top));
  if (!Number.isFinite(likely) || promised >= same * likely || top < SEEN * Math.min(lower, likely)) return null;
  const tried = history.all.filter((o) => o.micro_batch > promised && o.micro_batch <= likely);
  const begun = new Set(tried.filter((o) => o.fresh).map((o) => o.micro_batch)).size;
  // Where the first has told what lies in pieces, that is what is likely.
  const part = begun === 1 && model.pieces !== null ? 1 : PARTS[begun];
  if (part === undefined || (tried.length > 0 && begun === 0)) return null;
  const size = sizes.down(Math.min(part * likely, nearEnoughTo(ceiling ?? Number.POSITIVE_INFINITY)));
  if (size === null || size <= promised) return null;
  return {
    size,
    purpose: 'bound',
    fresh: true,
    why: `about ${Math.floor(likely)} fit where libraries do with less workspace than they are given`,
  };
}
