import { setTimeout as delay } from 'node:timers/promises';
import { aborted, TimeUp, within } from '../../common/within.js';
import type { WorkDeps, WorkRequest } from '../types.js';

/** Less than a lease gives up its release after, so that what is told of it is told here. */
const MOST_MS = 9_000;
/** For somebody who waits for their prompt. */
const INTERRUPTED_MS = 500;

/** What is still to be written into Redis once a job has ended: in the foreground it waits for an outage so long in all, and one note tells of it. A daemon has time. */
export class LastWrites {
  #leftMs = MOST_MS;
  #told = false;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: Pick<WorkDeps, 'signal' | 'progress'>,
  ) {}

  /** `lost`: what it means if it is not done in time. */
  async wait(work: Promise<unknown>, lost: string): Promise<void> {
    if (this.request.purpose === 'submit') return void (await work);
    const { signal } = this.deps;
    const began = Date.now();
    const leaves = aborted(signal).then(() => delay(INTERRUPTED_MS).then(() => false));
    const done = await within(this.#leftMs, null, () => Promise.race([work.then(() => true), leaves])).catch(
      (error: unknown) => {
        if (error instanceof TimeUp) return false;
        throw error;
      },
    );
    this.#leftMs = Math.max(0, this.#leftMs - (Date.now() - began));
    if (!done && !signal.aborted) this.tell(`Redis has taken nothing since the job ended: ${lost}. ${REMEDY}`);
  }

  /** What is not written: the first of it is told, as the rest has the same reason. */
  tell(text: string): void {
    if (!this.#told) this.deps.progress({ type: 'note', text });
    this.#told = true;
  }
}

const REMEDY = 'See that it runs and takes writes: `oomtune doctor` looks.';
