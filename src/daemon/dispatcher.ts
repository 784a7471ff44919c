import type { Log } from '../common/log.js';
import { ENDED_STATES } from '../contract/job.js';
import type { Store, StoredJob } from '../store/index.js';
import type { Queues } from './queues.js';
import { SweepGate } from './sweep-gate.js';

/**
 * Puts jobs into their queues when nothing stands in their way: just submitted, released, retried, or waiting for other
 * jobs. Any daemon may do it for any job, and several may at once: an entry's id makes it unique.
 */
export class Dispatcher {
  readonly #store: Store;
  readonly #queues: Queues;
  readonly #log: Log;
  #running: Promise<void> | null = null;
  #again = false;
  #waiting = false;

  constructor(store: Store, queues: Queues, log: Log) {
    this.#store = store;
    this.#queues = queues;
    this.#log = log;
  }

  /** Whether some job waits for others, as of the last look. */
  get waiting(): boolean {
    return this.#waiting;
  }

  /** Looks through all pending jobs; calls that come meanwhile make it look once more. */
  dispatch(): Promise<void> {
    if (this.#running !== null) {
      this.#again = true;
      return this.#running;
    }
    this.#running = this.#all().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #all(): Promise<void> {
    do {
      this.#again = false;
      this.#waiting = false;
      const pending = await this.#store.jobs.pending();
      pending.sort(bySubmission);
      const gate = await SweepGate.open(this.#store, pending);
      for (let at = 0; at < pending.length; at += 50) {
        const some = pending.slice(at, at + 50);
        await Promise.all(some.map((job) => this.#one(job, pending, gate)));
      }
    } while (this.#again);
  }

  async #one(job: StoredJob, pending: StoredJob[], gate: SweepGate): Promise<void> {
    const blocker = job.state === 'queued' ? ((await this.#blocker(job, pending)) ?? waitsAt(gate, job)) : null;
    if (blocker !== null) {
      this.#waiting = true;
      if ('dead' in blocker) {
        this.#log.info({ job: job.job, why: blocker.dead }, 'a job can never start');
        const failure = { class: 'cancelled' as const, evidence: blocker.dead, fields: {} };
        await this.#store.jobs.patch(job.job, { state: 'failed', reason: blocker.dead, failure });
      } else if (job.reason !== blocker.waits) {
        await this.#store.jobs.patch(job.job, { reason: blocker.waits });
      }
      return;
    }
    // Taken off first: a retry or release that comes between puts it on again. A crash between is found by the sweep.
    if (await this.#store.jobs.unpend(job, 'waits in its queue')) await this.#queues.add(job);
  }

  /** What of `--after` and `--after-any` is in the way. */
  async #blocker(job: StoredJob, pending: StoredJob[]): Promise<{ dead: string } | { waits: string } | null> {
    const { after, afterAny = [] } = job.options;
    const waits: string[] = [];
    const runs: string[] = [];
    for (const id of new Set([...after, ...afterAny])) {
      const success = after.includes(id);
      const near = pending.find((one) => one.job === id);
      const found = near === undefined ? await this.#store.jobs.find(id) : { is: 'job' as const, job: near };
      if (found.is === 'missing' && !success) continue; // so long ago that it was forgotten
      if (found.is === 'missing') return { dead: `${id}, which it was to come after, is not known any more` };
      if (found.is === 'unreadable') {
        (success ? waits : runs).push(`${id} (its record cannot be read)`);
        continue;
      }
      const known = found.job;
      if (known.state === 'succeeded') continue;
      if (ENDED_STATES.includes(known.state) && !success) continue;
      if (ENDED_STATES.includes(known.state))
        return { dead: `${id}, which it was to come after, ended as ${known.state}` };
      (success ? waits : runs).push(`${id} (${known.state})`);
    }
    const parts = [
      waits.length === 0 ? '' : `${waits.join(', ')} to succeed`,
      runs.length === 0 ? '' : `${runs.join(', ')} to end`,
    ].filter(Boolean);
    return parts.length === 0 ? null : { waits: `waits for ${parts.join(', and for ')}` };
  }
}

function waitsAt(gate: SweepGate, job: StoredJob): { waits: string } | null {
  const waits = gate.pass(job);
  return waits === null ? null : { waits };
}

/** By priority, so that a sweep goes on with the most urgent of its jobs; then as they were submitted. */
function bySubmission(a: StoredJob, b: StoredJob): number {
  if (a.options.priority !== b.options.priority) return b.options.priority - a.options.priority;
  if (a.submitted_at !== b.submitted_at) return a.submitted_at < b.submitted_at ? -1 : 1;
  return (a.options.sweep?.member ?? 0) - (b.options.sweep?.member ?? 0);
}
