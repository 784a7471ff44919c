import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Job } from 'bullmq';
import { OomtuneError } from '../common/errors.js';
import { stateFolder } from '../common/home.js';
import type { Log } from '../common/log.js';
import type { Device, Runtime } from '../runtime/types.js';
import { type HostInfo, hostName, type Store, type StoredJob } from '../store/index.js';
import { killPath } from './daemon-file.js';
import { Dispatcher } from './dispatcher.js';
import { Execution, type ExecutionEnd, type WorkerApi } from './execution.js';
import { Intake } from './intake.js';
import { Lanes } from './lanes.js';
import { Queues, type Ticket } from './queues.js';
import { labelOf, requirementOf } from './routing.js';
import type { DaemonSettings } from './settings.js';
import { Sweeper } from './sweeper.js';

export interface DaemonParts {
  store: Store;
  runtime: Runtime;
  worker: WorkerApi;
  settings: DaemonSettings;
  /** Known to every daemon of this home: what one took the next may go on with. */
  token: string;
  version: string;
  log: Log;
}

/**
 * The scheduler of one host. Jobs' records say who answers for what; queues only order them. It can be killed at any
 * moment: supervisors hold the jobs, and the next daemon adopts what its host had claimed.
 */
export class Daemon {
  readonly #parts: DaemonParts;
  readonly #host = hostName();
  readonly #queues: Queues;
  readonly #dispatcher: Dispatcher;
  readonly #sweeper: Sweeper;
  readonly #active = new Map<string, Execution>();
  readonly #running = new Set<Promise<void>>();
  readonly #lanes: Lanes;
  readonly #intake: Intake;
  readonly #timers: NodeJS.Timeout[] = [];
  #devices: Device[] = [];
  readonly #info: HostInfo;
  #stopping = false;
  #fatal: ((error: Error) => void) | null = null;

  constructor(parts: DaemonParts) {
    const { store, settings, token, log } = parts;
    this.#parts = parts;
    this.#queues = new Queues(store, settings, token, (error) => log.debug({ err: error }, 'queue'));
    this.#dispatcher = new Dispatcher(store, this.#queues, log);
    this.#sweeper = new Sweeper(parts, this.#host, this.#queues);
    this.#lanes = new Lanes(settings);
    this.#info = {
      host: this.#host,
      instance: token.slice(0, 12),
      pid: process.pid,
      version: parts.version,
      devices: [],
      started_at: new Date().toISOString(),
    };
    this.#intake = new Intake({
      store,
      queues: this.#queues,
      lanes: this.#lanes,
      host: this.#info,
      active: this.#active,
      log,
      claimOf: (record) => this.#claimOf(record),
      execute: (record, ticket) => this.#execute(record, ticket, false),
    });
  }

  /** Takes over what this host had claimed, then takes jobs. Throws OOMTUNE_DAEMON_RUNNING for a second of the name. */
  async start(): Promise<void> {
    const { store, settings, log } = this.#parts;
    await this.#inventory();
    const other = await store.hosts.beat(this.#info);
    if (other !== null) {
      throw new OomtuneError(
        'OOMTUNE_DAEMON_RUNNING',
        `Another daemon on this Redis calls itself ${this.#host} (pid ${other.pid}).`,
        'Stop it, or give each its own name by OOMTUNE_HOST.',
      );
    }
    await store.events.listen((wake, job) => this.#onWake(wake, job));
    await this.#adopt();
    this.#every(settings.heartbeatMs, () => this.#beat());
    this.#every(settings.renewMs, () => this.#renew());
    this.#every(settings.cancelLookMs, () => this.#lookForCancels());
    this.#every(settings.sweepMs, () => this.#sweep());
    store.connection.redis.on('ready', this.#onReady);
    await this.#dispatch();
    await this.#sweep();
    log.info(
      { host: this.#host, lanes: this.#lanes.sizes, redis: store.url, adopted: this.#active.size },
      'daemon ready',
    );
  }

  /** Resolves never; rejects when the daemon cannot go on. */
  get failed(): Promise<never> {
    return new Promise((_, reject) => {
      this.#fatal = reject;
    });
  }

  get activeJobs(): string[] {
    return [...this.#active.keys()];
  }

  /** Lets go of all jobs, which go on; `kill`: ends them and waits until nothing of them is left. */
  async stop({ kill }: { kill: boolean }): Promise<void> {
    const { store, settings, log } = this.#parts;
    this.#stopping = true;
    store.connection.redis.off('ready', this.#onReady);
    for (const timer of this.#timers) clearInterval(timer);
    await this.#intake.close();
    for (const execution of this.#active.values()) {
      if (kill) execution.cancel();
      else execution.detach();
    }
    log.info({ jobs: this.activeJobs, kill }, 'daemon stops');
    const settled = Promise.all(this.#running);
    if (kill) await settled;
    else await Promise.race([settled, new Promise((resolve) => setTimeout(resolve, settings.stopMs))]);
    await Promise.race([
      store.hosts.leave(this.#info).then(() => store.events.wake('host', '')),
      new Promise((resolve) => setTimeout(resolve, 1000)),
    ]);
    await this.#queues.close();
  }

  /** Whether `stop --kill` asked for this end. */
  get killAsked(): boolean {
    const asked = existsSync(killPath(this.#host));
    if (asked) rmSync(killPath(this.#host), { force: true });
    return asked;
  }

  #every(ms: number, task: () => Promise<void>): void {
    let busy = false;
    const timer = setInterval(() => {
      if (busy) return; // Redis is away: one that waits is enough
      busy = true;
      task()
        .catch((error: unknown) => this.#parts.log.warn({ err: error }, 'a periodic task failed'))
        .finally(() => {
          busy = false;
        });
    }, ms);
    this.#timers.push(timer);
  }

  readonly #onReady = (): void => {
    this.#parts.log.info('Redis is back');
    this.#intake.lookAtTaken();
    for (const execution of this.#active.values()) execution.repeat();
    this.#sweep().catch((error: unknown) => this.#parts.log.warn({ err: error }, 'sweep failed'));
  };

  #onWake(wake: string, job: string): void {
    if (this.#stopping) return;
    if (wake === 'cancel') this.#active.get(job)?.cancel();
    else if (wake === 'hold') this.#active.get(job)?.putBack();
    const kick = wake === 'submit' || wake === 'release' || wake === 'ended' ? this.#dispatch() : this.#intake.take();
    kick.catch((error: unknown) => this.#parts.log.warn({ err: error }, 'a wake could not be followed'));
  }

  async #inventory(): Promise<void> {
    this.#devices = await this.#parts.runtime.devices();
    const healthy = this.#devices.filter((device) => device.fault === null);
    this.#info.devices = healthy.map(({ id, model, total_bytes }) => ({ id, model, total_bytes }));
    this.#lanes.gpus = healthy.filter((device) => device.id !== 'cpu').length;
  }

  async #beat(): Promise<void> {
    const other = await this.#parts.store.hosts.beat(this.#info);
    if (other === null) return;
    this.#fatal?.(
      new OomtuneError(
        'OOMTUNE_DAEMON_RUNNING',
        `Another daemon took the name ${this.#host} on this Redis while it could not be heard.`,
        'Give each its own name by OOMTUNE_HOST.',
      ),
    );
  }

  async #renew(): Promise<void> {
    for (const execution of this.#active.values()) {
      if (execution.ticket === null) continue;
      const held = await this.#queues.extend(execution.ticket);
      if (!held) execution.ticket = null; // void from now on: the claim in the record is what counts
    }
  }

  async #lookForCancels(): Promise<void> {
    const ids = this.activeJobs;
    if (ids.length === 0) return;
    for (const id of await this.#parts.store.jobs.cancelAsked(ids)) this.#active.get(id)?.cancel();
  }

  async #sweep(): Promise<void> {
    if (this.#stopping) return;
    await this.#inventory();
    await this.#sweeper.sweep(this.#devices, this.#active, (label) => this.#intake.leaveAlone(label));
    await this.#adopt();
    await this.#dispatch();
  }

  async #dispatch(): Promise<void> {
    await this.#dispatcher.dispatch();
    await this.#intake.take();
  }

  /** Goes on with what this host answers for and nobody here works at: after a start, or a put-back that failed. */
  async #adopt(): Promise<void> {
    for (const record of await this.#parts.store.jobs.live()) {
      if (this.#stopping) return;
      if (record.claimHost !== this.#host || this.#active.has(record.job)) continue;
      if (record.state === 'held') continue;
      const claim = this.#claimOf(record);
      if ((await this.#parts.store.jobs.claim(record, this.#host, claim)) !== 'ours') continue;
      const fresh = await this.#parts.store.jobs.get(record.job);
      if (fresh === null || this.#active.has(record.job)) continue;
      const ticket = await this.#queues.reclaim(fresh).catch(() => null);
      this.#parts.log.info({ job: record.job, state: record.state, ticket: ticket !== null }, 'job adopted');
      this.#execute(fresh, ticket, true);
    }
  }

  #execute(record: StoredJob, ticket: Job<Ticket> | null, adopted: boolean): void {
    if (this.#active.has(record.job)) return; // adopted in the moment in which it was taken, or the other way round
    const { store, runtime, worker, log } = this.#parts;
    const runs = join(stateFolder('runs'), record.job, '/');
    if (record.launches.some(({ dir }) => !dir.startsWith(runs) || dir.includes('..'))) {
      void store.jobs.setAside(record.job, 'its launches stand outside of this home').catch(() => {});
      return;
    }
    const claim = this.#claimOf(record);
    const execution = new Execution(record, ticket, { store, runtime, worker, host: this.#host, claim, log });
    this.#active.set(record.job, execution);
    const done = this.#lanes
      .add(labelOf(requirementOf(record.options)), adopted, () => execution.run())
      .then((end) => this.#after(execution, end))
      .catch((error: unknown) => log.error({ err: error, job: record.job }, 'a job was lost sight of'));
    this.#running.add(done);
    void done.finally(() => this.#running.delete(done));
  }

  async #after(execution: Execution, end: ExecutionEnd): Promise<void> {
    const { ticket, record } = execution;
    this.#active.delete(record.job);
    if (ticket !== null && end === 'done') await this.#queues.finish(ticket);
    if (ticket !== null && end === 'back') await this.#queues.putBack(ticket);
    if (!this.#stopping) void this.#intake.take().catch(() => {});
  }

  /** The same for every daemon of this home, other in each epoch of the job. */
  #claimOf({ epoch }: StoredJob): string {
    return `${this.#parts.token}.${epoch}`;
  }
}
