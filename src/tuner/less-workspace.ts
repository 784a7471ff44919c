import type { NextSize, SearchState } from './search-state.js';
import { closingSize } from './sizes.js';

/** From this part of what libraries that do with less leave room for on, the line of the peaks tells it as well. */
const SAME = 0.98;
/** Where each fresh process is a start: from this part on. */
const SAME_FOR_A_START = 0.9;
/** What is needed is a line from so early on: part of the limit by the peaks. */
const SEEN = 0.2;
/** So much below what is likely to fit a size is tried first, and after each that failed twice as far below that. */
const BELOW = 0.015;
/** Sizes that may fail, before the line of the peaks is believed instead. */
const TRIES = 2;

/**
 * The size that fits if libraries do with the least of workspace, where that is more than the peaks promise: what a step needs is a line of which two
 * sizes tell the end (under 3 GiB of an H200 acgan of PyTorch-GAN needs 1.9 MiB a sample and takes 8.1). Null: it was tried, or is not known.
 */
export function withLessWorkspace({ history, model, sizes }: SearchState): NextSize | null {
  const { top, ceiling } = history;
  const { likely, lower } = model;
  if (!model.grown || top === null || likely === null || lower === null) return null;
  const same = history.forks ? SAME : SAME_FOR_A_START;
  const promised = Math.max(lower, closingSize(top));
  if (!Number.isFinite(likely) || promised >= same * likely || top < SEEN * Math.min(lower, likely)) return null;
  const tried = new Set(history.all.map((o) => o.micro_batch).filter((size) => size > promised));
  if (tried.size >= TRIES || (tried.size === 0 && ceiling !== null && ceiling <= likely)) return null;
  const size = sizes.down((1 - BELOW * (2 ** (tried.size + 1) - 1)) * likely);
  if (size === null || size <= promised || (ceiling !== null && size >= ceiling)) return null;
  return {
    size,
    purpose: 'bound',
    fresh: true,
    why: `about ${Math.floor(likely)} fit where libraries do with less workspace than they are given`,
  };
}
