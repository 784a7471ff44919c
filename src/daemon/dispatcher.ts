import type { Log } from '../common/log.js';
import { OneAtATime } from '../common/one-at-a-time.js';
import { ENDED_STATES } from '../contract/job.js';
import { IN_QUEUE, waitsForArray, waitsForJobs, waitsForSweep } from '../contract/waiting.js';
import type { Store, StoredJob } from '../store/index.js';
import { type DeadEnd, deadEndAfter } from './dead-end.js';
import type { Queues } from './queues.js';

/** Queues jobs that nothing blocks any more. Several daemons may do so at once, because an entry's id makes it unique. */
export class Dispatcher {
  readonly #looks = new OneAtATime(() => this.#all());
  #waiting = false;

  constructor(
    private readonly store: Store,
    private readonly queues: Queues,
    private readonly log: Log,
  ) {}

  /** Whether some job waited for others at the last look. */
  get waiting(): boolean {
    return this.#waiting;
  }

  /** Looks through all pending jobs, and once more for calls in between. */
  dispatch(): Promise<void> {
    return this.#looks.call();
  }

  async #all(): Promise<void> {
    this.#waiting = false;
    const pending = await this.store.jobs.pending();
    pending.sort(bySubmission);
    const admission = await SweepAdmission.open(this.store, pending);
    for (let at = 0; at < pending.length; at += 50) {
      const some = pending.slice(at, at + 50);
      await Promise.all(some.map((job) => this.#one(job, pending, admission)));
    }
  }

  async #one(job: StoredJob, pending: StoredJob[], admission: SweepAdmission): Promise<void> {
    const blocker = job.state === 'queued' ? ((await this.#blocker(job, pending)) ?? admission.pass(job)) : null;
    if (blocker !== null) {
      this.#waiting = true;
      if ('dead' in blocker) {
        this.log.info({ job: job.job, why: blocker.dead }, 'a job can never start');
        const { dead: evidence, advice } = blocker;
        const failure = { class: 'cancelled' as const, evidence, fields: { advice } };
        await this.store.jobs.patch(job.job, { state: 'failed', reason: blocker.dead, failure });
      } else if (job.reason !== blocker.waits) {
        await this.store.jobs.patch(job.job, { reason: blocker.waits });
      }
      return;
    }
    // Removed first: a retry or release in between adds it again, and after a crash the sweep finds it.
    if (await this.store.jobs.unpend(job, IN_QUEUE)) await this.queues.add(job);
  }

  /** What blocks it by `--after` or `--after-any`. */
  async #blocker(job: StoredJob, pending: StoredJob[]): Promise<DeadEnd | { waits: string } | null> {
    const { after, afterAny = [] } = job.options;
    const waits: string[] = [];
    const runs: string[] = [];
    for (const id of new Set([...after, ...afterAny])) {
      const success = after.includes(id);
      const near = pending.find((one) => one.job === id);
      const found = near === undefined ? await this.store.jobs.find(id) : { is: 'job' as const, job: near };
      if (found.is === 'missing' && !success) continue; // so long ago that it was forgotten
      if (found.is === 'missing')
        return {
          dead: `${id}, which it was to come after, is not known any more`,
          advice: `Submit it again without --after ${id}.`,
        };
      if (found.is === 'unreadable') {
        (success ? waits : runs).push(`${id} (its record cannot be read)`);
        continue;
      }
      const known = found.job;
      if (known.state === 'succeeded') continue;
      if (ENDED_STATES.includes(known.state) && !success) continue;
      const end = deadEndAfter(known);
      if (end !== null) return end;
      (success ? waits : runs).push(`${id} (${known.state})`);
    }
    const parts = [
      waits.length === 0 ? '' : `${waits.join(', ')} to succeed`,
      runs.length === 0 ? '' : `${runs.join(', ')} to end`,
    ].filter(Boolean);
    return parts.length === 0 ? null : { waits: waitsForJobs(parts) };
  }
}

/** By priority, then by submission. */
function bySubmission(a: StoredJob, b: StoredJob): number {
  if (a.options.priority !== b.options.priority) return b.options.priority - a.options.priority;
  if (a.submitted_at !== b.submitted_at) return a.submitted_at < b.submitted_at ? -1 : 1;
  return (a.options.sweep?.member ?? 0) - (b.options.sweep?.member ?? 0);
}

interface Family {
  begun: StoredJob[];
  settled: boolean;
}

/** Which jobs of a sweep may be queued: as many as may run at a time, but only one until their configuration is found. */
class SweepAdmission {
  private constructor(private readonly families: Map<string, Family>) {}

  /** `pending`: jobs without a queue entry. */
  static async open(store: Store, pending: StoredJob[]): Promise<SweepAdmission> {
    const ids = new Set(pending.flatMap(({ options }) => options.sweep?.sweep ?? []));
    if (ids.size === 0) return new SweepAdmission(new Map());
    const [live, settled] = await Promise.all([store.jobs.live(), store.sweeps.settled([...ids])]);
    const waits = new Set(pending.map(({ job }) => job));
    const begun = live.filter(({ job, state }) => state !== 'held' && !waits.has(job));
    const families = [...ids].map((id): [string, Family] => [
      id,
      { begun: begun.filter(({ options }) => options.sweep?.sweep === id), settled: settled.has(id) },
    ]);
    return new SweepAdmission(new Map(families));
  }

  /** Null: it may be queued. */
  pass(job: StoredJob): { waits: string } | null {
    const { sweep } = job.options;
    const family = sweep === undefined ? undefined : this.families.get(sweep.sweep);
    if (sweep === undefined || family === undefined) return null;
    const { begun, settled } = family;
    const first = begun[0]?.job;
    if (first !== undefined && !settled) return { waits: waitsForSweep(first) };
    if (sweep.atOnce !== null && begun.length >= sweep.atOnce) return { waits: waitsForArray(sweep.atOnce) };
    begun.push(job);
    return null;
  }
}
