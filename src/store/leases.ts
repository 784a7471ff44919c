import { randomBytes } from 'node:crypto';
import { ownUser } from '../common/user.js';
import { Alarm } from '../common/within.js';
import type { Device } from '../contract/launch.js';
import type { ForegroundLease, LeasePromise, LeaseRecord } from '../contract/state.js';
import type { Connection } from './connection.js';
import type { Events } from './events.js';
import { fairShare } from './fair-share.js';
import { HeldLease } from './held-lease.js';
import type { Keys } from './keys.js';
import { LeaseFiles } from './lease-files.js';
import { jobLives, memoryHeld, ownerLives, readLease } from './lease-record.js';
import { checkPossible, type LeaseRequest, type Reply, stillThere, toRequest, waitReason } from './lease-request.js';
import { hostName, pidScope, thisProcess } from './process-identity.js';
import { retry } from './retry.js';
import { runScript, type ScriptName } from './scripts.js';

export interface LeaseTimes {
  /** Without renewal for this long a lease's owner is looked for. */
  ttlMs: number;
  renewMs: number;
  /** While waiting, look again after this long even if nothing was heard. */
  lookMs: number;
  /** Who waits longer than this has the devices that he waits for kept free for him. */
  reserveAfterMs: number;
  /** What a user has used counts half after so long. Absent: as config/fair-share.yaml says. */
  halfLifeMs?: number;
}

export const LEASE_TIMES: LeaseTimes = { ttlMs: 60_000, renewMs: 15_000, lookMs: 2000, reserveAfterMs: 30_000 };

/** Instances of leases of this process. */
const own = new Set<string>();

/** Reserves device memory, for daemons and foreground commands on every host of this Redis. */
export class LeaseStore {
  readonly #listeners = new Set<() => void>();
  readonly files: LeaseFiles;

  constructor(
    private readonly connection: Connection,
    private readonly keys: Keys,
    private readonly events: Events,
    private readonly times: LeaseTimes = LEASE_TIMES,
  ) {
    this.files = new LeaseFiles(`${connection.target.shown} ${keys.prefix}`);
  }

  /** Told of refusals that the holder of a lease waits out. */
  get onRefused(): (error: Error) => void {
    return this.connection.onRefused;
  }

  /** Waits until `count` devices can be reserved in one step. Throws the signal's reason, or OOMTUNE_DEVICE_MISSING. */
  async acquire(request: LeaseRequest): Promise<HeldLease> {
    const { owner, count, signal, onWait } = request;
    let { devices } = request;
    checkPossible(request);
    const user = request.user ?? ownUser();
    const instance = randomBytes(9).toString('base64url');
    own.add(instance);
    const record = {
      host: hostName(),
      user,
      boot: pidScope(),
      instance,
      process: request.process ?? thisProcess(),
      bytes: request.bytes ?? undefined,
      share: request.share,
      pair: request.pair || undefined,
      foreground: request.foreground ?? undefined,
      supervisors: [],
    };
    let lastReason = '';
    let asked = false;
    const alarm = new Alarm();
    let unlisten: (() => void) | null = null;
    try {
      signal.throwIfAborted();
      // What a killed owner left would count as company, though there is room; what this owner held before is taken over
      await this.reap(devices, owner);
      for (;;) {
        signal.throwIfAborted();
        const avoid = (await request.avoid?.()) ?? [];
        const wanted = {
          devices: devices.map(toRequest),
          pair: request.pair,
          avoid: avoid.length > 0 ? avoid : undefined,
          count,
          bytes: request.bytes ?? undefined,
          need: request.needBytes ?? undefined,
          share: request.share,
          priority: request.priority ?? 0,
          across: request.across || undefined,
          most: request.mostGpus ?? undefined,
          lenient: request.lenient ?? false,
          since: request.waitingSince,
          lasts: request.lastsSeconds == null ? undefined : Math.ceil(request.lastsSeconds * 1000),
        };
        // A request that has waited outlives a refusal of Redis; a new one fails at once
        const ask = async () => {
          const promised = this.files.living();
          const args = [
            owner,
            JSON.stringify(wanted),
            JSON.stringify(record),
            this.times.ttlMs,
            this.times.reserveAfterMs,
          ];
          const answer = await this.#run('lease/acquire', [...args, JSON.stringify(promised)]);
          await this.#undo(promised);
          return answer;
        };
        const said = asked ? await retry(ask, { signal, onRefused: this.onRefused }) : await ask();
        asked = true;
        const reply = JSON.parse(String(said)) as Reply;
        if ('granted' in reply) {
          const granted = reply.granted.map((uuid) => devices.find((device) => device.uuid === uuid) as Device);
          const granting = readLease(owner, JSON.stringify(reply.record)) as LeaseRecord;
          const { text: _, taken_at: __, expires_at: ___, ...promise } = granting;
          const interrupted = request.foreground == null ? undefined : signal; // a daemon has time
          return new HeldLease(this, promise, { devices: granted, foreign: reply.foreign }, this.times, interrupted);
        }
        const reason = waitReason(reply, devices, { ...request, user });
        if (reason !== lastReason) onWait(reason);
        lastReason = reason;
        request.onPassedOver?.(reply.passed);
        unlisten ??= await this.events.listen((what) => what === 'lease' && alarm.ring());
        await alarm.sleep(this.times.lookMs, signal);
        if (signal.aborted) break;
        await retry(() => this.reap(devices), { signal, onRefused: this.onRefused });
        if (request.refresh !== undefined) devices = stillThere(devices, await request.refresh());
      }
      throw signal.reason;
    } catch (error) {
      own.delete(instance);
      // Not awaited: Redis may be away, and the place in the queue expires
      this.#run('lease/free', [owner, instance, '']).catch(() => {});
      throw error;
    } finally {
      unlisten?.();
    }
  }

  /** Everything that is reserved, by everybody. */
  async list(): Promise<LeaseRecord[]> {
    const all = Object.entries(await this.connection.redis.hgetall(this.keys.leases));
    return all.flatMap(([owner, text]) => readLease(owner, text) ?? []);
  }

  /** What works in the foreground: of another host, what has renewed its lease in time. */
  async foreground(): Promise<ForegroundLease[]> {
    return (await this.list()).filter(
      (lease): lease is ForegroundLease =>
        lease.foreground != null && (lease.boot === pidScope() ? ownerLives(lease) : lease.expires_at > Date.now()),
    );
  }

  /**
   * Frees the leases of this host's crashed owners once their processes and, where `devices` tells, their memory are gone. A
   * living owner keeps its lease, however late it renews, unless it had released it. `except`: this owner's is left alone.
   * Returns the owners.
   */
  async reap(devices: Device[], except: string | null = null): Promise<string[]> {
    const freed: string[] = [];
    for (const lease of await this.list()) {
      if (lease.owner === except) continue;
      if (lease.host !== hostName() || (ownerLives(lease) && !isReleased(lease))) continue;
      if (lease.boot === pidScope() && (await jobLives(lease))) continue;
      if (lease.boot !== pidScope() && lease.boot.split('/')[0] === pidScope().split('/')[0]) {
        // In another pid namespace of this machine, only the silence of its processes shows
        if (lease.expires_at + 10 * this.times.ttlMs > Date.now()) continue;
      }
      if (memoryHeld(lease, devices)) continue;
      this.files.remove(lease); // first: from here on nobody writes it back
      // Only if it is unchanged since it was read
      if ((await this.#run('lease/free', [lease.owner, '', lease.text])) === 1) freed.push(lease.owner);
    }
    return freed;
  }

  async #here(owner: string): Promise<LeaseRecord | undefined> {
    return (await this.list()).find((one) => one.owner === owner && one.host === hostName());
  }

  /** Whether the lease of a job that has ended on this host stands for a process of it that lives on. */
  async heldByEnded(owner: string): Promise<boolean> {
    const lease = await this.#here(owner);
    return lease !== undefined && lease.boot === pidScope() && (await jobLives(lease));
  }

  /** Frees what an owner holds on this host, for who answered for the job here and knows that nothing of it is left. */
  async forget(owner: string): Promise<void> {
    const lease = await this.#here(owner);
    if (lease === undefined) return;
    this.files.remove(lease);
    await this.#run('lease/free', [owner, lease.instance, '']);
  }

  /** Frees what is reserved on a host that is gone: all of it, or what one owner holds. Returns the owners. */
  async forgetHost(host: string, owner: string | null = null): Promise<string[]> {
    const all = await this.list();
    const leases = all.filter((one) => one.host === host && (owner === null || one.owner === owner));
    for (const lease of leases) await this.#run('lease/free', [lease.owner, lease.instance, '']);
    return leases.map((lease) => lease.owner);
  }

  /** Writes a lease back that Redis has lost. False: the owner has one, taken by a later process of it. */
  async restore(promise: LeasePromise): Promise<boolean> {
    return (await this.#run('lease/restore', [this.times.ttlMs, JSON.stringify([promise])])) === 1;
  }

  /** Calls back each time when the connection is there again; returns how to stop. */
  whenBack(listener: () => void): () => void {
    if (this.#listeners.size === 0) this.connection.redis.on('ready', this.#onReady);
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.connection.redis.off('ready', this.#onReady);
    };
  }

  readonly #onReady = (): void => {
    for (const listener of this.#listeners) listener();
  };

  /** What was released while it was being handed over may have been written back by that. */
  async #undo(promised: LeasePromise[]): Promise<void> {
    for (const promise of promised) {
      if (!this.files.has(promise)) await this.#run('lease/free', [promise.owner, promise.instance, '']);
    }
  }

  renew(owner: string, instance: string): Promise<boolean> {
    return this.#run('lease/renew', [owner, instance, this.times.ttlMs]).then((reply) => reply === 1);
  }

  async beside(owner: string, instance: string): Promise<string[]> {
    const text = await this.connection.redis.hget(this.keys.leases, owner);
    const lease = text === null ? null : readLease(owner, text);
    return lease?.instance === instance ? lease.beside : [];
  }

  /** False: the lease is gone. */
  async attach(owner: string, instance: string, supervisor: LeasePromise['supervisors'][number]): Promise<boolean> {
    return (await this.#run('lease/attach', [owner, instance, JSON.stringify(supervisor)])) === 1;
  }

  async resize(owner: string, instance: string, bytes: number | null, devices: Device[]): Promise<number> {
    const wanted = { bytes: bytes ?? undefined, devices: devices.map(toRequest) };
    return Number(await this.#run('lease/resize', [owner, instance, JSON.stringify(wanted)]));
  }

  async release(owner: string, instance: string): Promise<void> {
    await this.#run('lease/free', [owner, instance, '']);
    own.delete(instance);
  }

  /** No longer this process's: whoever looks next frees it when nothing of its job is left. */
  leave(instance: string): void {
    own.delete(instance);
  }

  #run(script: ScriptName, args: (string | number)[]): Promise<unknown> {
    const { leases, leaseQueue, wake, events, refused, usage } = this.keys;
    const keys = [leases, leaseQueue, wake, events, refused, usage];
    return runScript(this.connection.redis, script, keys, [...args, this.times.halfLifeMs ?? fairShare().halfLifeMs]);
  }
}

function isReleased({ process: { pid, start }, instance }: LeaseRecord): boolean {
  const here = thisProcess();
  return pid === here.pid && start === here.start && !own.has(instance);
}
