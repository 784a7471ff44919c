import { setPaused } from '../runtime/ending.js';
import type { StoredJob } from '../store/index.js';

/** Stops a job's processes or continues them. Its memory stays reserved. */
export class Pause {
  /** The last action of this daemon; null: none. */
  #done: 'on' | 'off' | null = null;

  constructor(private readonly record: StoredJob) {}

  /** How many processes it reached; null: no change, or no run. */
  async set(wanted: 'on' | 'off'): Promise<number | null> {
    const last = this.record.launches.at(-1);
    if (wanted === this.#done || last?.purpose !== 'run') return null;
    this.#done = wanted;
    this.record.pause = wanted;
    return setPaused(last.dir, wanted === 'on');
  }
}
