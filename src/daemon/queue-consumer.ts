import type { Job } from 'bullmq';
import type { Log } from '../common/log.js';
import { OneAtATime } from '../common/one-at-a-time.js';
import { type HostInfo, type Ticket, ticket as ticketSchema } from '../contract/state.js';
import type { Store } from '../store/index.js';
import type { DiskSpace } from './disk-space.js';
import type { Executions } from './executions.js';
import type { Lanes } from './lanes.js';
import type { Queues } from './queues.js';
import { labelFor } from './routing.js';

interface ConsumerParts {
  store: Store;
  queues: Queues;
  lanes: Lanes;
  host: HostInfo;
  executions: Executions;
  diskSpace: DiskSpace;
  log: Log;
}

/** A job that waited here in vain is left to other hosts for so long. */
const LEFT_MS = 3000;
/** With so many jobs that wait no more are looked at for one that may go before others. */
const MOST_WAITING = 32;

/** Takes jobs from suitable queues while there are lanes for them. One look at a time. */
export class QueueConsumer {
  readonly #left = new Set<string>();
  readonly #looks = new OneAtATime(() => this.#allOrAgain());
  #closed = false;
  #sortOut = true;

  constructor(private readonly parts: ConsumerParts) {}

  /** Calls in between make it look once more. */
  take(): Promise<void> {
    return this.#looks.call();
  }

  /** The next look begins with the entries that this home has locked. */
  lookAtTaken(): void {
    this.#sortOut = true;
  }

  leaveAlone(label: string): void {
    this.#left.add(label);
    setTimeout(() => {
      this.#left.delete(label);
      void this.take().catch(() => {});
    }, LEFT_MS).unref();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#looks.idle();
  }

  /** After an error between taking an entry and claiming its job, the entry is ours but nobody works on it. */
  async #allOrAgain(): Promise<void> {
    try {
      await this.#all();
    } catch (error) {
      this.#sortOut = true;
      throw error;
    }
  }

  async #all(): Promise<void> {
    const { queues, host } = this.parts;
    if (this.#closed) return;
    const labels = await queues.suitable(host);
    const sortOut = this.#sortOut;
    if (sortOut) await this.#sortOutTaken(labels);
    let turns = await queues.inTurn(labels.filter((one) => !this.#left.has(one)));
    while (turns.length > 0) turns = await this.#takeInTurn(turns);
    if (sortOut && !this.#closed) await queues.letGoOfEmpty();
  }

  /** Entries locked by this home that nobody works at, left by a killed daemon: they would wait until the lock expires. */
  async #sortOutTaken(labels: string[]): Promise<void> {
    const { store, queues, executions } = this.parts;
    const ours = new Set([...executions].map((execution) => execution.ticket?.id));
    for (const label of labels) {
      for (const ticket of await queues.taken(label)) {
        if (ours.has(ticket.id)) continue;
        const entry = ticketSchema.safeParse(ticket.data).data ?? null;
        const found = entry === null ? null : await store.jobs.find(entry.job);
        const record = found?.is === 'job' ? found.job : null;
        const waits = record?.state === 'queued' && record.epoch === entry?.epoch && record.claimHost === null;
        if (waits) await queues.putBack(ticket);
        else if (record === null || !executions.has(record.job)) await queues.finish(ticket);
      }
    }
    this.#sortOut = false;
  }

  /** Takes one job of each user, of the first of the labels that has one to take. Returns what may have more. */
  async #takeInTurn(turns: string[][]): Promise<string[][]> {
    const left: string[][] = [];
    for (const labels of turns) {
      const at = await this.#firstTaken(labels);
      if (at !== null) left.push(labels.slice(at));
    }
    return left;
  }

  async #firstTaken(labels: string[]): Promise<number | null> {
    for (const [at, label] of labels.entries()) if (await this.#takeFrom(label)) return at;
    return null;
  }

  /** Takes a job, unless one of the label waits that is not kept from devices by others: a job behind that may end in time. */
  async #takeFrom(label: string): Promise<boolean> {
    const { queues, lanes, executions } = this.parts;
    const waits = [...executions].filter(({ leaseWait }) => leaseWait.since !== null);
    const labels = waits.map(({ record }) => labelFor(record));
    if (this.#closed || !lanes.hasRoom(label, labels) || this.parts.diskSpace.lack !== null) return false;
    if (labels.includes(label) && labels.length >= MOST_WAITING) return false;
    const waiting = waits.find(({ leaseWait }, at) => labels[at] === label && !leaseWait.passedOver);
    if (waiting !== undefined) {
      const best = await queues.waitingPriority(label);
      if (best === null || best <= waiting.record.options.priority || !waiting.putBack()) return false;
    }
    const ticket = await queues.next(label);
    if (ticket === null) return false;
    await this.#begin(ticket);
    return true;
  }

  async #begin(ticket: Job<Ticket>): Promise<void> {
    const { store, queues, host, executions, log } = this.parts;
    const entry = ticketSchema.safeParse(ticket.data).data ?? null;
    if (entry === null) {
      log.warn({ entry: ticket.id }, 'a queue entry that cannot be read was refused');
      await queues.refuse(ticket, 'it cannot be read');
      return;
    }
    const { record } = await store.jobs
      .claim(entry, host.host, executions.claimOf(entry))
      .catch(async (error: unknown) => {
        this.#sortOut = true; // Redis would not say: the entry is ours, and must not lie there until its lock expires
        throw error;
      });
    if (record === null) {
      // On hold, ended, of an earlier try of the job, or claimed by another host, which continues it
      await queues.finish(ticket);
      return;
    }
    const working = executions.get(record.job);
    if (working === undefined) executions.begin(record, ticket, false);
    else working.ticket ??= ticket;
  }
}
