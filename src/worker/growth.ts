import type { Step } from './hook-messages.js';

/**
 * Memory in use at the start of steps, as the hook reports them. In a healthy loop it is flat after the optimizer's state
 * has appeared; a straight rise is a leak, and no batch size helps against one.
 */
export class Growth {
  #first: Point | null = null;
  #last: Point | null = null;
  #points = 0;
  #rises = true;

  add(step: Step): void {
    const bytes = step.resident_bytes ?? step.allocated_bytes ?? null;
    if (bytes === null || step.n <= 2) return;
    this.#rises &&= bytes >= (this.#last?.bytes ?? 0);
    this.#last = { step: step.n, bytes };
    this.#first ??= this.#last;
    this.#points += 1;
  }

  /** Rise per step over at least five points that never fall, in bytes; null when there is no such rise. */
  perStep(): { bytesPerStep: number; steps: number } | null {
    const first = this.#first;
    const last = this.#last;
    if (this.#points < 5 || first === null || last === null) return null;
    const steps = last.step - first.step;
    const bytesPerStep = Math.round((last.bytes - first.bytes) / Math.max(1, steps));
    // A tenth of what was there at the start, or it may be a cache that fills once.
    if (!this.#rises || bytesPerStep <= 0 || last.bytes - first.bytes < first.bytes / 10) return null;
    return { bytesPerStep, steps };
  }
}

interface Point {
  step: number;
  bytes: number;
}
