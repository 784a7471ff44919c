import type { Step } from './hook-messages.js';

/**
 * Memory in use at the start of steps, as the hook reports them. In a healthy loop it is flat after the optimizer's state
 * has appeared; a straight rise is a leak, and no batch size helps against one.
 */
export class Growth {
  readonly #points: { step: number; bytes: number }[] = [];

  add(step: Step): void {
    const bytes = step.resident_bytes ?? step.allocated_bytes ?? null;
    if (bytes !== null && step.n > 2) this.#points.push({ step: step.n, bytes });
  }

  /** Rise per step over at least five points that never fall, in bytes; null when there is no such rise. */
  perStep(): { bytesPerStep: number; steps: number } | null {
    const points = this.#points;
    const first = points[0];
    const last = points.at(-1);
    if (points.length < 5 || !first || !last) return null;
    const rises = points.every((point, index) => index === 0 || point.bytes >= (points[index - 1]?.bytes ?? 0));
    const steps = last.step - first.step;
    const bytesPerStep = Math.round((last.bytes - first.bytes) / Math.max(1, steps));
    // A tenth of what was there at the start, or it may be a cache that fills once.
    if (!rises || bytesPerStep <= 0 || last.bytes - first.bytes < first.bytes / 10) return null;
    return { bytesPerStep, steps };
  }
}
