import { setPaused } from '../runtime/ending.js';
import type { StoredJob } from '../store/index.js';

/** Stops a job's processes or continues them. Its memory stays reserved. */
export class Pause {
  /** What was done last; null: nothing by this daemon. */
  #done: 'on' | 'off' | null = null;

  constructor(private readonly record: StoredJob) {}

  /** How many processes were told; null: it stands so already, or no run is under way. */
  async set(wanted: 'on' | 'off'): Promise<number | null> {
    const last = this.record.launches.at(-1);
    if (wanted === this.#done || last?.purpose !== 'run') return null;
    this.#done = wanted;
    this.record.pause = wanted;
    return setPaused(last.dir, wanted === 'on');
  }
}
