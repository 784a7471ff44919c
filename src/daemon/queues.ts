import { type Job, Queue, UnrecoverableError, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { readJson } from '../contract/fields.js';
import { type Requirement, requirement as requirementSchema, type Ticket } from '../contract/state.js';
import { isRefusal, type Store, type StoredJob } from '../store/index.js';
import { type HostDevices, labelFor, labelOf, queueOf, suits } from './routing.js';
import type { DaemonSettings } from './settings.js';

/** BullMQ's priorities go from 1 (first) to 2097151, ours from -1000000 to 1000000 (first). */
const MIDDLE = 1_048_576;

/** One queue for each routing label. BullMQ orders and locks jobs; records say who answers for them. Attempts are always 1. */
export class Queues {
  readonly #connection: Redis;
  readonly #queues = new Map<string, Queue<Ticket>>();
  readonly #workers = new Map<string, Worker<Ticket>>();
  readonly #requirements = new Map<string, Requirement>();
  /** Since when each queue has held nothing at every look (ms). */
  readonly #emptySince = new Map<string, number>();
  #labelsRead = false;

  constructor(
    private readonly store: Store,
    private readonly settings: DaemonSettings,
    private readonly token: string,
    private readonly onError: (error: Error) => void,
  ) {
    this.#connection = store.connection.another();
    this.#connection.setMaxListeners(0);
  }

  /** Adds a job to its queue; idempotent. */
  async add(record: StoredJob): Promise<void> {
    const requirement = queueOf(record);
    const label = labelOf(requirement);
    this.#emptySince.delete(label); // it is not let go of while the entry is on its way
    await this.queue(label).add(
      'job',
      { job: record.job, epoch: record.epoch },
      {
        jobId: ticketId(record),
        priority: MIDDLE - record.options.priority,
        attempts: 1,
        removeOnComplete: true,
        removeOnFail: true,
      },
    );
    await this.#addLabel(label, requirement);
  }

  /** Only once the entry stands there: with an empty queue its label may go at any moment. */
  async #addLabel(label: string, requirement: Requirement): Promise<void> {
    this.#requirements.set(label, requirement);
    if (await this.store.queues.addLabel(label, requirement)) await this.store.events.wake('label');
  }

  /** Queues that hold something for this host: no other is opened, as each that is has a connection of its own. */
  async suitable(host: HostDevices): Promise<string[]> {
    if (!this.#labelsRead) await this.#readLabels();
    const all = [...this.#requirements].filter(([, requirement]) => suits(requirement, host)).map(([label]) => label);
    const empty = await this.store.queues.empty(all);
    return all.filter((label) => !empty.has(label));
  }

  /** Closes and removes queues, of any host, that have held nothing for long. Not while `next` is called. */
  async letGoOfEmpty(): Promise<void> {
    const all = new Set([...this.#requirements.keys(), ...this.#queues.keys(), ...this.#workers.keys()]);
    const empty = await this.store.queues.empty([...all]);
    const now = performance.now();
    for (const label of this.#emptySince.keys()) if (!empty.has(label)) this.#emptySince.delete(label);
    for (const label of empty) if (!this.#emptySince.has(label)) this.#emptySince.set(label, now);
    for (const [label, since] of this.#emptySince)
      if (now - since >= this.settings.emptyQueueMs) await this.#letGo(label);
  }

  async #letGo(label: string): Promise<void> {
    await this.#workers.get(label)?.close(true);
    this.#workers.delete(label);
    const gone = await this.store.queues.removeEmpty(label);
    if (!gone || !this.#emptySince.delete(label)) return; // an entry has come, or is on its way
    const queue = this.#queues.get(label);
    this.#queues.delete(label);
    this.#requirements.delete(label);
    await queue?.close();
  }

  /** Another daemon made a queue, so they have to be read again. */
  forgetLabels(): void {
    this.#labelsRead = false;
  }

  async #readLabels(): Promise<void> {
    this.#labelsRead = true;
    const before = [...this.#requirements.keys()];
    const labels = await this.store.queues.labels();
    for (const label of before) if (labels[label] === undefined) this.#requirements.delete(label);
    for (const [label, text] of Object.entries(labels)) {
      const requirement = this.#requirements.get(label) ?? readJson(requirementSchema, text);
      // A label that does not match its requirement was not written by us
      if (requirement !== null && labelOf(requirement) === label) this.#requirements.set(label, requirement);
    }
  }

  /** Locks and returns the first job of a queue; null: none. */
  async next(label: string): Promise<Job<Ticket> | null> {
    try {
      const job = await this.#worker(label).getNextJob(this.token, { block: false });
      return (job as Job<Ticket> | undefined) ?? null;
    } catch (error) {
      if ((await this.#dropUnreadable(label)) > 0) return this.next(label);
      throw error;
    }
  }

  /** BullMQ takes an entry before it finds that its data is no JSON. */
  async #dropUnreadable(label: string): Promise<number> {
    const dropped = await this.store.queues.dropUnreadable(label);
    for (const id of dropped)
      this.onError(new Error(`entry ${id} of queue ${label} could not be read and was removed`));
    return dropped.length;
  }

  /** The entry of a job that an earlier daemon of this host took, if our lock on it still holds. */
  async reclaim(record: StoredJob): Promise<Job<Ticket> | null> {
    const label = labelFor(record);
    const job = (await this.queue(label).getJob(ticketId(record))) as Job<Ticket> | undefined;
    if (job === undefined) return null;
    return (await this.extend(job)) ? job : null;
  }

  async taken(label: string): Promise<Job<Ticket>[]> {
    await this.#dropUnreadable(label);
    const active = (await this.queue(label).getActive()) as Job<Ticket>[];
    const locked = await Promise.all(active.map((job) => this.extend(job)));
    return active.filter((_, at) => locked[at] === true);
  }

  async extend(job: Job<Ticket>): Promise<boolean> {
    return (await job.extendLock(this.token, this.settings.lockMs)) === 1;
  }

  /** Removes the entry; the record has the job's outcome. Throws only if Redis refuses. */
  async finish(job: Job<Ticket>): Promise<void> {
    const gone = await job.moveToCompleted('', this.token, false).then(() => false, isGone);
    // Not ours, or an earlier try was refused halfway, after the lock was gone and before the entry was
    if (gone || job.opts.removeOnComplete !== true) await job.remove().catch(isGone);
  }

  async refuse(job: Job<Ticket>, why: string): Promise<void> {
    await job.moveToFailed(new UnrecoverableError(why), this.token, false).catch(isGone);
    await job.remove().catch(isGone);
  }

  async putBack(job: Job<Ticket>): Promise<void> {
    await job.moveToWait(this.token).catch(isGone);
  }

  /** Which of these jobs have an entry, waiting or taken. A queue that holds one without having its label gets it. */
  async present(records: StoredJob[]): Promise<boolean[]> {
    const found = new Set<string>();
    for (const [label, { requirement, ids }] of byQueue(records)) {
      const standing = await this.store.queues.standing(label, ids);
      for (const id of standing) found.add(id);
      // A daemon died between the two, or Redis lost the label: nobody would ever look into this queue
      if (standing.length > 0 && !this.#requirements.has(label)) await this.#addLabel(label, requirement);
    }
    return records.map((record) => found.has(ticketId(record)));
  }

  /** Removes the rest of an entry that no queue holds, after a script of BullMQ's was refused halfway. */
  async drop(record: StoredJob): Promise<void> {
    await this.queue(labelFor(record)).remove(ticketId(record));
  }

  /** Null: nothing waits. */
  async waitingPriority(label: string): Promise<number | null> {
    const { priority } = await this.store.queues.head(label);
    return priority === null ? null : MIDDLE - priority;
  }

  /**
   * The labels of each user, by their first entry: the highest priority, then the oldest. Users in the order of their turns: who has
   * used least lately first. What an admin put first or last comes before or after all of them.
   */
  async inTurn(labels: string[]): Promise<string[][]> {
    if (labels.length < 2) return [labels];
    const heads = await Promise.all(labels.map(async (label) => ({ label, ...(await this.store.queues.head(label)) })));
    heads.sort((a, b) => (a.priority ?? 0) - (b.priority ?? 0) || a.since - b.since);
    const turns = new Map<string, { rank: number; since: number; labels: string[] }>();
    const used = await this.store.usage.list();
    for (const { label, priority, since } of heads) {
      const owner = this.#requirements.get(label)?.owner;
      const last = owner === undefined && (priority ?? 0) > MIDDLE;
      const key = owner === undefined ? `${last}` : `of ${owner}`;
      const rank = owner === undefined ? (last ? Number.POSITIVE_INFINITY : -1) : (used.get(owner) ?? 0);
      const turn = turns.get(key) ?? { rank, since: since || Number.POSITIVE_INFINITY, labels: [] };
      turn.since = Math.min(turn.since, since || Number.POSITIVE_INFINITY);
      turn.labels.push(label);
      turns.set(key, turn);
    }
    return [...turns.values()]
      .sort((a, b) => compare(a.rank, b.rank) || compare(a.since, b.since))
      .map((one) => one.labels);
  }

  /** Leaves all locks as they are. */
  async close(): Promise<void> {
    await Promise.all([...this.#workers.values()].map((worker) => worker.close(true).catch(() => {})));
    await Promise.all([...this.#queues.values()].map((queue) => queue.close().catch(() => {})));
    this.#connection.disconnect();
  }

  queue(label: string): Queue<Ticket> {
    let queue = this.#queues.get(label);
    if (queue === undefined) {
      queue = new Queue<Ticket>(label, {
        connection: this.#connection,
        prefix: this.store.queues.prefix,
        streams: { events: { maxLen: 1000 } },
      });
      queue.on('error', this.onError);
      this.#queues.set(label, queue);
    }
    return queue;
  }

  #worker(label: string): Worker<Ticket> {
    let worker = this.#workers.get(label);
    if (worker === undefined) {
      worker = new Worker<Ticket>(label, null, {
        connection: this.#connection,
        prefix: this.store.queues.prefix,
        autorun: false,
        lockDuration: this.settings.lockMs,
        maxStalledCount: 1_000_000, // a daemon may be restarted any number of times under a run of days
        stalledInterval: Math.min(60_000, this.settings.lockMs),
      });
      worker.on('error', this.onError);
      void worker.startStalledCheckTimer().catch(() => {});
      this.#workers.set(label, worker);
    }
    return worker;
  }
}

const compare = (a: number, b: number): number => (a === b ? 0 : a < b ? -1 : 1);

/** Ids of entries by the label of their queue. */
function byQueue(records: StoredJob[]): Map<string, { requirement: Requirement; ids: string[] }> {
  const queues = new Map<string, { requirement: Requirement; ids: string[] }>();
  for (const record of records) {
    const requirement = queueOf(record);
    const label = labelOf(requirement);
    const { ids } = queues.get(label) ?? { ids: [] as string[] };
    ids.push(ticketId(record));
    queues.set(label, { requirement, ids });
  }
  return queues;
}

/** BullMQ's errors mean that the entry, or our lock on it, is gone. Rethrows Redis's refusals, which mean neither. */
function isGone(error: unknown): true {
  if (isRefusal(error)) throw error;
  return true;
}

const ticketId = ({ job, epoch }: Pick<StoredJob, 'job' | 'epoch'>): string => `${job}-${epoch}`;
