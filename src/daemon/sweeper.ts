import type { Log } from '../common/log.js';
import type { Device } from '../contract/launch.js';
import type { HostInfo, Requirement } from '../contract/state.js';
import {
  inQueueFor,
  isForDaemon,
  isForJobs,
  isInQueue,
  NO_DAEMON,
  noDaemonOn,
  noHostHas,
} from '../contract/waiting.js';
import type { KnownHost, Store, StoredJob } from '../store/index.js';
import type { Executions } from './executions.js';
import type { Queues } from './queues.js';
import { describe, type HostDevices, labelFor, requirementOf, suits } from './routing.js';
import { sweepEnvironments } from './saved-environment.js';
import type { DaemonSettings } from './settings.js';
import { silenceOf } from './silence.js';

/** A host that fell silent longer ago is not named as one that may have what a job asks for. */
const GONE_MS = 3_600_000;

/** Looks for what no event tells: hosts that vanished, lost queue entries, leases of crashed owners, jobs that no host can run. */
export class Sweeper {
  /** Jobs without a queue entry at the last sweep; an entry may just be on its way. */
  #missing = new Set<string>();

  others: string[] = [];

  constructor(
    private readonly parts: { store: Store; settings: DaemonSettings; log: Log },
    /** Its own, which lives, whether or not Redis has taken that. */
    private readonly own: HostInfo,
    private readonly queues: Queues,
  ) {}

  /** `passOn` gets the label of a job that is given back for others to take. */
  async sweep(devices: Device[], executions: Executions, passOn: (label: string) => void): Promise<void> {
    const hosts = await this.parts.store.hosts.list();
    const others = hosts.filter(({ host }) => host !== this.own.host);
    const alive = [this.own, ...others.flatMap(({ info }) => info ?? [])];
    const silent = others.flatMap(({ host, seen, alive }) => (alive || Date.now() - seen > GONE_MS ? [] : [host]));
    this.others = others.flatMap(({ host, alive }) => (alive ? [host] : []));
    const live = await this.parts.store.jobs.live();
    for (const job of live) {
      if (job.claimHost === null || job.claimHost === this.own.host) continue;
      if (!hosts.some(({ host, alive }) => host === job.claimHost && alive)) await this.#afterVanishing(job, hosts);
    }
    await this.#findLostEntries(live);
    await this.#sayWhyTheyWait(live, alive, silent);
    this.#giveToOthers(executions, alive, passOn);
    for (const owner of await this.parts.store.leasing.reap(devices))
      this.parts.log.info({ owner }, 'lease of a crashed owner freed');
    await this.parts.store.jobs.prune(this.parts.settings.keptJobs);
    await sweepEnvironments(this.parts.store, (job) => executions.has(job));
  }

  /** Its host is silent. A job without a launch goes to another host; one with a launch may still run there, and waits for it. */
  async #afterVanishing(job: StoredJob, hosts: KnownHost[]): Promise<void> {
    const silence = silenceOf({ ...job, host: job.claimHost }, hosts);
    if (await this.parts.store.jobs.requeue(job, `${job.claimHost} was not heard: queued anew`)) {
      this.parts.log.warn(
        { job: job.job, host: job.claimHost },
        'the host vanished before it launched the job: queued anew',
      );
      return;
    }
    if (job.launches.length === 0 || silence === null) return;
    if (job.reason !== silence) await this.parts.store.jobs.patch(job.job, { reason: silence });
  }

  async #findLostEntries(live: StoredJob[]): Promise<void> {
    const waiting = live.filter((job) => job.state === 'queued' && job.claimHost === null && job.slurm == null);
    const pending = await this.parts.store.jobs.isPending(waiting.map((job) => job.job));
    const queued = waiting.filter((_, at) => pending[at] !== true);
    const present = await this.queues.present(queued);
    const missing = new Set<string>();
    for (const [at, job] of queued.entries()) {
      if (present[at] === true) continue;
      if (!this.#missing.has(job.job)) {
        missing.add(job.job);
        continue;
      }
      await this.queues.drop(job);
      if (await this.parts.store.jobs.requeue(job, NO_DAEMON))
        this.parts.log.warn({ job: job.job }, 'a queued job had no entry in its queue: queued anew');
    }
    this.#missing = missing;
  }

  async #sayWhyTheyWait(live: StoredJob[], alive: HostDevices[], silent: string[]): Promise<void> {
    for (const job of live) {
      if (job.state !== 'queued' || job.claimHost !== null || job.slurm != null || isForJobs(job.reason)) continue;
      const why = waitingReason(requirementOf(job.options), alive, live, silent);
      // A lease's own reason ("waits for cuda:0, …") says more
      const reason = isInQueue(why) && job.reason?.startsWith('waits for ') ? job.reason : why;
      if (reason !== job.reason && !isForDaemon(job.reason)) await this.parts.store.jobs.patch(job.job, { reason });
    }
  }

  /** A job that waits here for its lease may get one elsewhere. */
  #giveToOthers(executions: Executions, alive: HostDevices[], passOn: (label: string) => void): void {
    for (const execution of executions) {
      const { leaseWait, record } = execution;
      if (leaseWait.since === null || Date.now() - leaseWait.since < this.parts.settings.putBackMs) continue;
      const requirement = requirementOf(record.options);
      if (!alive.some((host) => host.host !== this.own.host && suits(requirement, host))) continue;
      passOn(labelFor(record));
      execution.putBack();
    }
  }
}

/** Why a job in its queue has not been taken: no host can, or those that can are busy. `live`: all jobs that have not ended. `silent`: hosts that are not heard. */
export function waitingReason(
  requirement: Requirement,
  alive: HostDevices[],
  live: StoredJob[],
  silent: string[] = [],
): string {
  const names = (hosts: HostDevices[]): string =>
    hosts
      .map(({ host }) => host)
      .sort()
      .join(', ');
  if (requirement.host !== null && !alive.some(({ host }) => host === requirement.host))
    return noDaemonOn(requirement.host, names(alive));
  const fitting = alive.filter((host) => suits(requirement, host));
  if (fitting.length === 0)
    return noHostHas(describe(requirement), names(alive), requirement.host === null ? silent.join(', ') : '');
  const ready = fitting.filter(({ lacks }) => !lacks);
  if (ready.length === 0)
    return `no job is taken: ${fitting.map(({ host, lacks }) => `${host} lacks ${lacks}`).join('; ')}`;
  const busy = live.filter((job) => job.claimHost !== null && ready.some(({ host }) => host === job.claimHost));
  const [first, ...more] = busy.map(({ job }) => job);
  const by = first === undefined ? '' : `, busy with ${first}${more.length > 0 ? ` and ${more.length} more` : ''}`;
  return inQueueFor(names(ready), by);
}
