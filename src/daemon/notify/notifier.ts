import type { Log } from '../../common/log.js';
import { TimeUp, within } from '../../common/within.js';
import { ENDED_STATES } from '../../contract/job.js';
import type { Notification, NotifyMarks } from '../../contract/notification.js';
import type { Store, StoredJob } from '../../store/index.js';
import type { Hands } from '../hands.js';
import { endedEvent, isSmaller, steppedDownEvent, waitingEvent } from './event.js';

interface NotifierParts {
  store: Store;
  host: string;
  handsFor: (job: StoredJob) => Hands | null;
  /** A job that is queued for longer than this, in ms, waits for long. */
  waitMs: number;
  log: Log;
}

/** One event is told at most so often, where it cannot be. */
const MOST_TRIES = 3;
const AGAIN_MS = 15_000;
/** An agent is its user's, who can keep it from answering. */
const LONGEST_MS = 60_000;
/** At a time of one owner: who is slow to be told keeps nobody else from it. */
const MOST_AT_ONCE = 4;
/** A job is noted a moment before its record is there. */
const SETTLED_MS = 60_000;

/** Tells of the jobs that were submitted on this host with `--notify`. Redis holds which are owed, and what was told of them. */
export class Notifier {
  readonly #busy = new Map<string, string>();
  readonly #failed = new Map<string, { tries: number; at: number }>();
  readonly #missing = new Map<string, number>();
  #closed = false;

  constructor(private readonly parts: NotifierParts) {}

  /** All of them, in case a wake was lost. */
  async look(): Promise<void> {
    const owed = await this.parts.store.notify.owed();
    for (const id of this.#missing.keys()) if (!owed.has(id)) this.#missing.delete(id);
    for (const [id, marks] of owed) if (this.#mayMatter(id)) await this.#one(id, marks);
  }

  /** A job has ended. */
  async ended(id: string): Promise<void> {
    const marks = await this.parts.store.notify.marks(id);
    if (marks !== null) await this.#one(id, marks);
  }

  close(): void {
    this.#closed = true;
  }

  #mayMatter(id: string): boolean {
    const failed = this.#failed.get(id);
    return !this.#busy.has(id) && (failed === undefined || Date.now() - failed.at >= AGAIN_MS);
  }

  async #one(id: string, marks: NotifyMarks): Promise<void> {
    const { store, host, handsFor } = this.parts;
    if (this.#closed || !this.#mayMatter(id)) return;
    const found = await store.jobs.find(id);
    if (found.is === 'missing') return this.#forgetMissing(id);
    if (found.is !== 'job') return;
    const { job } = found;
    if (!job.options.notify) return store.notify.settle(id); // somebody wrote it there who may not
    if (job.environment?.host !== host) return; // who it was submitted to tells of it
    const due = this.#due(job, marks);
    const hands = due === null ? null : handsFor(job);
    if (due === null || hands === null) return;
    const owner = String(job.uid ?? '');
    if (this.#busy.has(id)) return; // a wake and a look came at once
    if ([...this.#busy.values()].filter((one) => one === owner).length >= MOST_AT_ONCE) return;
    this.#busy.set(id, owner);
    void this.#tell(job, hands, marks, due).finally(() => this.#busy.delete(id));
  }

  async #forgetMissing(id: string): Promise<void> {
    const since = this.#missing.get(id) ?? Date.now();
    this.#missing.set(id, since);
    if (Date.now() - since > SETTLED_MS) await this.parts.store.notify.settle(id);
  }

  /** What there is to tell next, and the marks for when it was told; `null` marks: it was the last. */
  #due(job: StoredJob, marks: NotifyMarks): { event: Notification; after: NotifyMarks | null } | null {
    const runs = job.launches.flatMap(({ purpose, config }) => (purpose === 'run' && config !== null ? [config] : []));
    for (let at = Math.max(1, marks.runs); at < runs.length; at += 1) {
      const [before, now] = [runs[at - 1], runs[at]];
      if (before && now && isSmaller(now, before))
        return { event: steppedDownEvent(job, before, now), after: { ...marks, runs: at + 1 } };
    }
    if (ENDED_STATES.includes(job.state)) return { event: endedEvent(job), after: null };
    const waits = job.state === 'queued' && Date.now() - Date.parse(job.submitted_at) > this.parts.waitMs;
    return waits && !marks.waited ? { event: waitingEvent(job), after: { ...marks, waited: true } } : null;
  }

  /** Never rejects: nothing of it may harm a job. */
  async #tell(
    job: StoredJob,
    hands: Hands,
    marks: NotifyMarks,
    { event, after }: { event: Notification; after: NotifyMarks | null },
  ): Promise<void> {
    const { store, log } = this.parts;
    const about = { job: job.job, event: event.event };
    try {
      // What was read before another look told of it is old
      const now = await store.notify.marks(job.job);
      if (now === null || now.waited !== marks.waited || now.runs !== marks.runs) return;
      const why = await within(LONGEST_MS, null, () => hands.notify(job, event)).catch((error: unknown) =>
        error instanceof TimeUp ? 'whoever is to tell of it does not answer' : (error as Error).message,
      );
      const tries = (this.#failed.get(job.job)?.tries ?? 0) + 1;
      if (why !== null && tries < MOST_TRIES) {
        this.#failed.set(job.job, { tries, at: Date.now() });
        log.warn({ ...about, why, tries }, 'a notification could not be told: it is tried again');
        return;
      }
      this.#failed.delete(job.job);
      if (why !== null) {
        log.warn({ ...about, why }, 'a notification could not be told');
        await store.notify.note(job.job, `${event.event.replace('_', ' ')}: ${why}`);
      } else log.info(about, 'a notification was told');
      if (after !== null) return await store.notify.mark(job.job, after);
      await store.notify.settle(job.job);
      hands.environmentOf(job).forget();
    } catch (error) {
      log.warn({ ...about, err: error }, 'a notification could not be settled');
    }
  }
}
