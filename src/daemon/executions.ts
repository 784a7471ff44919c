import { join } from 'node:path';
import type { Job } from 'bullmq';
import { stateFolder } from '../common/home.js';
import type { Log } from '../common/log.js';
import type { Runtime } from '../runtime/types.js';
import { outlast, type Store, type StoredJob } from '../store/index.js';
import { Execution, type ExecutionEnd, type WorkerApi } from './execution.js';
import type { Lanes } from './lanes.js';
import type { Queues, Ticket } from './queues.js';
import { labelOf, requirementOf } from './routing.js';

export interface ExecutionsParts {
  store: Store;
  runtime: Runtime;
  worker: WorkerApi;
  host: string;
  token: string;
  log: Log;
  queues: Queues;
  lanes: Lanes;
  /** Told when one has ended here: its lane is free. */
  onEnd: () => void;
  /** Told when one waits for devices, and takes no lane meanwhile. */
  onWait: () => void;
}

/** The jobs that this daemon works at, each once. */
export class Executions {
  readonly #parts: ExecutionsParts;
  readonly #active = new Map<string, Execution>();
  readonly #running = new Set<Promise<void>>();

  constructor(parts: ExecutionsParts) {
    this.#parts = parts;
  }

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

  /** `adopted`: it runs already, and does not wait for a lane. */
  begin(record: StoredJob, ticket: Job<Ticket> | null, adopted: boolean): void {
    if (this.has(record.job)) return; // adopted in the moment in which it was taken, or the other way round
    const { store, lanes, log } = this.#parts;
    const runs = join(stateFolder('runs'), record.job, '/');
    if (record.launches.some(({ dir }) => !dir.startsWith(runs) || dir.includes('..'))) {
      store.jobs
        .setAside(record.job, 'its launches stand outside of this home')
        .catch((error: unknown) => log.warn({ err: error, job: record.job }, 'a record could not be set aside'));
      return;
    }
    const execution = new Execution(record, ticket, { ...this.#parts, claim: this.claimOf(record) });
    this.#active.set(record.job, execution);
    const done = lanes
      .add(labelOf(requirementOf(record.options)), adopted, () => execution.run())
      .then((end) => this.#after(execution, end))
      .catch((error: unknown) => log.error({ err: error, job: record.job }, 'a job was lost sight of'));
    this.#running.add(done);
    void done.finally(() => this.#running.delete(done));
  }

  /** The same for every daemon of this home, other in each epoch of the job. */
  claimOf({ epoch }: Pick<StoredJob, 'epoch'>): string {
    return `${this.#parts.token}.${epoch}`;
  }

  /** Resolves when those that were begun by now are over. */
  async settled(): Promise<void> {
    await Promise.all(this.#running);
  }

  async #after({ ticket, record }: Execution, end: ExecutionEnd): Promise<void> {
    const { queues, onEnd, store } = this.#parts;
    this.#active.delete(record.job);
    onEnd();
    if (ticket === null || end === 'left') return;
    const { onRefused } = store.connection;
    await outlast(() => (end === 'done' ? queues.finish(ticket) : queues.putBack(ticket)), { onRefused });
  }
}
