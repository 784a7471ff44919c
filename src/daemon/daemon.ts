import { existsSync, rmSync } from 'node:fs';
import { longWaitMs } from '../common/bounds.js';
import { OomtuneError } from '../common/errors.js';
import type { Log } from '../common/log.js';
import { waitAtMost } from '../common/within.js';
import { isHost } from '../contract/device-id.js';
import type { Device } from '../contract/launch.js';
import type { HostInfo } from '../contract/state.js';
import type { Runtime } from '../runtime/types.js';
import { hostName, type Store, type StoredJob } from '../store/index.js';
import { AfterOutage } from './after-outage.js';
import { killPath } from './daemon-file.js';
import { DiskSpace } from './disk-space.js';
import { Dispatcher } from './dispatcher.js';
import { Executions } from './executions.js';
import { hostTaken, isForeign } from './foreign-home.js';
import type { Hands } from './hands.js';
import { JobBackups } from './job-backups.js';
import { Lanes } from './lanes.js';
import { forgetLeftEnvironment } from './left-environment.js';
import { Notifier } from './notify/notifier.js';
import { Periodic } from './periodic.js';
import { QueueConsumer } from './queue-consumer.js';
import { Queues } from './queues.js';
import { Recovery } from './recovery.js';
import type { DaemonSettings } from './settings.js';
import { Sharing } from './sharing/index.js';
import type { JobSteps } from './sharing/pace.js';
import { followSlurm } from './slurm/follow.js';
import { Sweeper } from './sweeper.js';

export interface DaemonParts {
  store: Store;
  runtime: Runtime;
  /** Who works on this job's files and processes; null: nobody here can. */
  handsFor: (job: StoredJob) => Hands | null;
  settings: DaemonSettings;
  /** The same for every daemon of this home, so that the next can continue. */
  token: string;
  version: string;
  log: Log;
}

/**
 * The scheduler of one host. Records say who answers for a job; queues only order jobs. It can be killed at any moment:
 * supervisors hold the jobs, and the next daemon adopts what its host had claimed.
 */
export class Daemon {
  readonly #host = hostName();
  readonly #queues: Queues;
  readonly #dispatcher: Dispatcher;
  readonly #sweeper: Sweeper;
  readonly #executions: Executions;
  readonly #lanes: Lanes;
  readonly #consumer: QueueConsumer;
  readonly #diskSpace: DiskSpace;
  readonly #recovery: Recovery;
  readonly #sharing: Sharing;
  readonly #outage: AfterOutage;
  readonly #notifier: Notifier;
  readonly #periodic: Periodic;
  #devices: Device[] = [];
  readonly #info: HostInfo;
  #stopping = false;
  #fatal: ((error: Error) => void) | null = null;

  constructor(private readonly parts: DaemonParts) {
    const { store, settings, token, log } = parts;
    this.#queues = new Queues(store, settings, token, (error) => log.debug({ err: error }, 'queue'));
    this.#dispatcher = new Dispatcher(store, this.#queues, log);
    this.#lanes = new Lanes(settings);
    this.#periodic = new Periodic(log);
    this.#info = {
      host: this.#host,
      instance: token.slice(0, 12),
      pid: process.pid,
      version: parts.version,
      labels: settings.labels,
      devices: [],
      started_at: new Date().toISOString(),
    };
    this.#sweeper = new Sweeper(parts, this.#info, this.#queues);
    const claimed = new JobBackups(store, log);
    const ended = new JobBackups(store, log, 'ended');
    this.#recovery = new Recovery({ ...parts, claimed, ended, host: this.#host });
    const shared = { queues: this.#queues, lanes: this.#lanes };
    this.#executions = new Executions({
      ...parts,
      ...shared,
      claimed,
      ended,
      settled: () => this.#outage.settled(),
      host: this.#host,
      onEnd: () => this.#take(),
      onWait: () => this.#take(),
    });
    this.#outage = new AfterOutage({
      store,
      sweeper: this.#sweeper,
      recovery: this.#recovery,
      executions: this.#executions,
      beat: () => this.#beat(),
    });
    this.#sharing = new Sharing({
      store,
      log,
      executions: this.#executions,
      devices: () => this.#devices,
      windowMs: settings.pairWindowMs,
    });
    this.#notifier = new Notifier({ ...parts, host: this.#host, waitMs: settings.notifyWaitMs ?? longWaitMs() });
    this.#diskSpace = new DiskSpace(settings.roomBytes, log);
    this.#consumer = new QueueConsumer({
      ...shared,
      diskSpace: this.#diskSpace,
      store,
      log,
      host: this.#info,
      executions: this.#executions,
    });
  }

  /** Adopts what this host had claimed, then takes jobs. Throws OOMTUNE_DAEMON_RUNNING for a second daemon of the name. */
  async start(): Promise<void> {
    const { store, settings, log } = this.parts;
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
    await this.#recovery.recover();
    await this.#refuseForeignHome();
    await this.#adopt();
    this.#periodic.every(settings.heartbeatMs, () => this.#beat());
    this.#periodic.every(settings.renewMs, () => this.#renew());
    this.#periodic.every(settings.cancelLookMs, () => this.#compare());
    this.#periodic.every(settings.pairLookMs, () => this.#sharing.look());
    this.#periodic.every(settings.sweepMs, () => this.#sweep());
    this.#periodic.every(settings.notifyLookMs, () => this.#notifier.look());
    this.#periodic.every(settings.slurmLookMs, () => followSlurm(store));
    this.#unready = store.connection.onReady(this.#onReady);
    await this.#dispatch();
    await this.#sweep();
    log.info(
      { host: this.#host, lanes: this.#lanes.sizes, redis: store.url, adopted: this.#executions.size },
      'daemon ready',
    );
  }

  /** How far a job that runs here has come; null: it does not, or its hook told of no step. */
  steps(job: string): JobSteps | null {
    return this.#executions.get(job)?.pace.progress ?? null;
  }

  /** Rejects when the daemon cannot go on; never resolves. */
  get failed(): Promise<never> {
    return new Promise((_, reject) => {
      this.#fatal = reject;
    });
  }

  /** Lets go of all jobs, which go on; `kill`: ends them and waits until nothing is left. */
  async stop({ kill }: { kill: boolean }): Promise<void> {
    const { store, settings, log } = this.parts;
    this.#stopping = true;
    this.#outage.stop();
    this.#unready();
    this.#periodic.close();
    this.#notifier.close();
    await waitAtMost(this.#consumer.close()); // Redis may be away
    await waitAtMost(this.#sharing.close().catch((err: unknown) => log.warn({ err }, 'jobs may stand still')));
    for (const execution of this.#executions) {
      if (kill) execution.cancel();
      else execution.detach();
    }
    log.info({ jobs: this.#executions.ids(), kill }, 'daemon stops');
    await waitAtMost(this.#executions.settled(), kill ? settings.killMs : settings.stopMs);
    if (kill && this.#executions.size > 0) log.error({ jobs: this.#executions.ids() }, 'jobs could not be ended');
    await waitAtMost(store.hosts.leave(this.#info).then(() => store.events.wake('host', '')));
    await waitAtMost(this.#queues.close());
  }

  get killAsked(): boolean {
    const asked = existsSync(killPath(this.#host));
    if (asked) rmSync(killPath(this.#host), { force: true });
    return asked;
  }

  #unready: () => void = () => {};
  readonly #onReady = (): void => {
    this.parts.log.info('Redis is back');
    this.#comeBack().catch((error: unknown) => this.parts.log.warn({ err: error }, 'sweep failed'));
  };

  async #comeBack(): Promise<void> {
    await this.#outage.compare();
    this.#consumer.lookAtTaken();
    for (const execution of this.#executions) execution.repeat();
    await this.#sweep();
  }

  /** Throws OOMTUNE_HOST_TAKEN. */
  async #refuseForeignHome(): Promise<void> {
    const taken = hostTaken(await this.parts.store.jobs.live(), this.#host, this.parts.token);
    if (taken === null) return;
    await this.parts.store.hosts.leave(this.#info);
    throw taken;
  }

  #onWake(wake: string, job: string): void {
    if (this.#stopping || this.#outage.runs) return;
    if (wake === 'cancel') this.#executions.get(job)?.cancel();
    else if (wake === 'hold') this.#executions.get(job)?.putBack();
    else if (wake === 'label') this.#queues.forgetLabels();
    else if (wake === 'ended') this.#afterEnd(job);
    const queued = wake === 'submit' || wake === 'release' || (wake === 'ended' && this.#dispatcher.waiting);
    const kick =
      wake === 'pause'
        ? this.#compare()
        : queued
          ? this.#dispatch()
          : wake === 'ended'
            ? Promise.resolve()
            : this.#consumer.take();
    kick.catch((error: unknown) => this.parts.log.warn({ err: error }, 'a wake could not be followed'));
  }

  #afterEnd(job: string): void {
    this.#notifier.ended(job).catch((err: unknown) => this.parts.log.debug({ err, job }, 'told of at the next look'));
    if (this.#executions.has(job)) return; // which forgets it by itself
    forgetLeftEnvironment(job, { ...this.parts, host: this.#host }).catch((err: unknown) =>
      this.parts.log.debug({ err, job }, 'its environment is removed by the next sweep'),
    );
  }

  async #inventory(): Promise<void> {
    this.#devices = await this.parts.runtime.devices();
    const healthy = this.#devices.filter((device) => device.fault === null);
    this.#info.lacks = this.#diskSpace.lack;
    this.#info.devices = healthy.map(({ id, model, total_bytes }) => ({ id, model, total_bytes }));
    this.#lanes.gpus = healthy.filter((device) => !isHost(device.id)).length;
  }

  async #beat(): Promise<void> {
    const before = this.#info.lacks;
    this.#info.lacks = this.#diskSpace.lack;
    const other = await this.parts.store.hosts.beat(this.#info);
    if (before && this.#info.lacks === null) this.#take();
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
    for (const execution of this.#executions) {
      if (execution.ticket === null) continue;
      const extended = await this.#queues.extend(execution.ticket);
      if (!extended) execution.ticket = null; // void from now on: the claim in the record is what counts
    }
  }

  async #compare(): Promise<void> {
    if (this.#executions.size > 0) await this.#executions.compare();
  }

  async #sweep(): Promise<void> {
    if (this.#stopping || this.#outage.runs) return;
    this.#queues.forgetLabels();
    this.#consumer.lookAtTaken(); // what was taken by a request whose answer was lost
    await this.#inventory();
    await this.#sweeper.sweep(this.#devices, this.#executions, (label) => this.#consumer.leaveAlone(label));
    await this.#recovery.writeBack((job) => this.#executions.has(job)); // lost before anybody adopted it
    await this.#adopt();
    await this.#dispatch();
  }

  async #dispatch(): Promise<void> {
    await this.#dispatcher.dispatch();
    await this.#consumer.take();
  }

  /** Continues this host's jobs that nobody here works on: after a start, or a put-back that failed. */
  async #adopt(): Promise<void> {
    for (const record of await this.parts.store.jobs.live()) {
      if (this.#stopping) return;
      if (record.claimHost !== this.#host || this.#executions.has(record.job)) continue;
      if (record.state === 'held' || isForeign(record, this.parts.token)) continue;
      const claim = this.#executions.claimOf(record);
      const { outcome, record: fresh } = await this.parts.store.jobs.claim(record, this.#host, claim);
      if (outcome !== 'ours') continue;
      const ticket = await this.#queues.reclaim(fresh).catch(() => null);
      this.parts.log.info({ job: record.job, state: record.state, ticket: ticket !== null }, 'job adopted');
      this.#executions.begin(fresh, ticket, true);
    }
  }

  #take(): void {
    if (this.#stopping || this.#outage.runs) return;
    this.#consumer.take().catch((error: unknown) => this.parts.log.warn({ err: error }, 'no job could be taken'));
  }
}
