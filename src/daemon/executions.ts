import { join } from 'node:path';
import type { Job } from 'bullmq';
import type { Ticket } from '../contract/state.js';
import { type Reply, retry, type Standing, type StoredJob } from '../store/index.js';
import { Execution, type ExecutionDeps, type ExecutionEnd } from './execution.js';
import type { Hands } from './hands.js';
import type { Lanes } from './lanes.js';
import type { Queues } from './queues.js';
import { labelFor } from './routing.js';

interface ExecutionsParts extends Omit<ExecutionDeps, 'claim' | 'hands'> {
  /** Who works on this job; null: nobody here can. */
  handsFor: (job: StoredJob) => Hands | null;
  /** Resolves when the comparison with Redis after an outage is done. */
  settled: () => Promise<void>;
  token: string;
  queues: Queues;
  lanes: Lanes;
  /** Called when one has ended and its lane is free. */
  onEnd: () => void;
}

/** The jobs that this daemon works on, each once. */
export class Executions {
  readonly #active = new Map<string, Execution>();
  readonly #running = new Set<Promise<void>>();
  /** Already reported. */
  readonly #outside = new Set<string>();

  constructor(private readonly parts: ExecutionsParts) {}

  get size(): number {
    return this.#active.size;
  }

  ids(): string[] {
    return [...this.#active.keys()];
  }

  has(job: string): boolean {
    return this.#active.has(job);
  }

  get(job: string): Execution | undefined {
    return this.#active.get(job);
  }

  [Symbol.iterator](): IterableIterator<Execution> {
    return this.#active.values();
  }

  /** `adopted`: it runs already and waits for no lane. */
  begin(record: StoredJob, ticket: Job<Ticket> | null, adopted: boolean): void {
    if (this.has(record.job)) return; // adopted in the moment in which it was taken, or the other way round
    const { lanes, log, settled } = this.parts;
    const hands = this.parts.handsFor(record);
    const runs = hands === null ? null : join(hands.runs, record.job, '/');
    if (hands === null || record.launches.some(({ dir }) => !dir.startsWith(runs ?? '') || dir.includes('..'))) {
      const why = hands === null ? "a job is nobody's" : 'the launches of a job stand outside of this home';
      if (!this.#outside.has(record.job)) log.warn({ job: record.job }, `${why}: it is left alone`);
      this.#outside.add(record.job);
      return;
    }
    const execution = new Execution(record, ticket, { ...this.parts, hands, claim: this.claimOf(record) });
    this.#active.set(record.job, execution);
    const done = lanes
      .add(labelFor(record), adopted, () => settled().then(() => execution.run()))
      .then((end) => this.#after(execution, end))
      .catch((error: unknown) => log.error({ err: error, job: record.job }, 'a job was lost sight of'));
    this.#running.add(done);
    void done.finally(() => this.#running.delete(done));
  }

  /** The same for every daemon of this home, but different in each epoch of the job. */
  claimOf({ epoch }: Pick<StoredJob, 'epoch'>): string {
    return `${this.parts.token}.${epoch}`;
  }

  /** Compares all executions with their records (see Execution.compare). Throws the first refusal, after the others were done. */
  async compare(): Promise<void> {
    const looks = [...this.#active.values()].flatMap((execution) => {
      const { expected } = execution;
      return expected === null ? [] : [{ execution, expected }];
    });
    const replies = await this.parts.store.jobs.standing(looks.map(({ execution }) => execution.record.job));
    const done = await Promise.allSettled(
      looks.map(({ execution, expected }, at) => execution.compare(expected, replies[at] as Reply<Standing>)),
    );
    for (const one of done) if (one.status === 'rejected') throw one.reason;
    for (const reply of replies) if (reply.is === 'error') throw reply.error;
  }

  /** Resolves when all copies of jobs that others took over have ended. */
  async fenced(): Promise<void> {
    await Promise.all([...this.#active.values()].map((execution) => execution.fenced));
  }

  async settled(): Promise<void> {
    await Promise.all(this.#running);
  }

  async #after({ ticket, record }: Execution, end: ExecutionEnd): Promise<void> {
    const { queues, onEnd, store } = this.parts;
    this.#active.delete(record.job);
    onEnd();
    if (ticket === null || end === 'left') return;
    const { onRefused } = store.connection;
    await retry(() => (end === 'done' ? queues.finish(ticket) : queues.putBack(ticket)), { onRefused });
  }
}
