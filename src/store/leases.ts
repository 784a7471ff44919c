import { randomBytes } from 'node:crypto';
import type { Connection } from './connection.js';
import type { Events } from './events.js';
import { HeldLease } from './held-lease.js';
import type { Keys } from './keys.js';
import { jobLives, memoryHeld, ownerLives } from './lease-owner.js';
import { type Reply, waitReason } from './lease-reason.js';
import { type LeaseRecord, readLease } from './lease-record.js';
import { checkPossible, type LeaseDevice, type LeaseRequest, stillThere, toRequest } from './lease-request.js';
import * as scripts from './lease-scripts.js';
import { outlast } from './outlast.js';
import { bootId, hostName, startTime, thisProcess } from './process-identity.js';
import type { Script } from './script.js';

export interface LeaseTimes {
  /** Without renewal for this long a lease's owner is looked for. */
  ttlMs: number;
  renewMs: number;
  /** While waiting, look again after this long even if nothing was heard. */
  lookMs: number;
  /** Who waits longer than this has the devices that he waits for kept free for him. */
  patienceMs: number;
}

export const LEASE_TIMES: LeaseTimes = { ttlMs: 60_000, renewMs: 15_000, lookMs: 2000, patienceMs: 30_000 };

/** Reserves device memory: the same leases for daemons and foreground commands, on every host of this Redis. */
export class LeaseStore {
  readonly #connection: Connection;
  readonly #keys: Keys;
  readonly #events: Events;
  readonly #times: LeaseTimes;

  constructor(connection: Connection, keys: Keys, events: Events, times: LeaseTimes = LEASE_TIMES) {
    this.#connection = connection;
    this.#keys = keys;
    this.#events = events;
    this.#times = times;
  }

  /** Told of refusals that the holder of a lease waits out. */
  get onRefused(): (error: Error) => void {
    return this.#connection.onRefused;
  }

  /**
   * Waits until `count` of the devices can be reserved in one step. Rejects with the signal's reason, or with
   * OOMTUNE_DEVICE_MISSING for what can never be.
   */
  async acquire<D extends LeaseDevice>(request: LeaseRequest<D>): Promise<HeldLease<D>> {
    const { owner, count, signal, onWait } = request;
    let { devices } = request;
    checkPossible(request);
    const instance = randomBytes(9).toString('base64url');
    const record = {
      host: hostName(),
      boot: bootId(),
      instance,
      process: thisProcess(),
      bytes: request.bytes ?? undefined,
      share: request.share,
    };
    let told = '';
    let asked = false;
    let wake: () => void = () => {};
    let unlisten: (() => void) | null = null;
    try {
      for (;;) {
        signal.throwIfAborted();
        const wanted = {
          devices: devices.map(toRequest),
          count,
          bytes: request.bytes ?? undefined,
          need: request.needBytes ?? undefined,
          share: request.share,
          priority: request.priority ?? 0,
          lenient: request.lenient ?? false,
        };
        const args = [owner, JSON.stringify(wanted), JSON.stringify(record), this.#times.ttlMs, this.#times.patienceMs];
        // Who has waited is not sent away because Redis would not answer just now; who has not, is told at once
        const ask = () => this.#run(scripts.ACQUIRE, args);
        const said = asked ? await outlast(ask, { signal, onRefused: this.onRefused }) : await ask();
        asked = true;
        const reply = JSON.parse(String(said)) as Reply;
        if ('granted' in reply) {
          const granted = reply.granted.map((uuid) => devices.find((device) => device.uuid === uuid) as D);
          return new HeldLease(this, owner, instance, { devices: granted, foreign: reply.foreign }, this.#times);
        }
        const reason = waitReason(reply.waits, devices, request);
        if (reason !== told) onWait(reason);
        told = reason;
        unlisten ??= await this.#events.listen((what) => what === 'lease' && wake());
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, this.#times.lookMs);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
          signal.addEventListener('abort', wake, { once: true });
          if (signal.aborted) wake();
        });
        signal.removeEventListener('abort', wake);
        if (signal.aborted) break;
        await outlast(() => this.reap(devices), { signal, onRefused: this.onRefused });
        if (request.refresh !== undefined) devices = stillThere(devices, await request.refresh());
      }
      throw signal.reason;
    } catch (error) {
      // Not waited for: Redis may be away, and the place in the queue expires by itself
      this.#run(scripts.FREE, [owner, instance, '']).catch(() => {});
      throw error;
    } finally {
      unlisten?.();
    }
  }

  /** Everything that is reserved, by everybody. */
  async list(): Promise<LeaseRecord[]> {
    const all = Object.entries(await this.#connection.redis.hgetall(this.#keys.leases));
    return all.flatMap(([owner, text]) => readLease(owner, text) ?? []);
  }

  /** Reserved bytes by device uuid. A whole device counts with `totals`, where it is known. */
  async reservations(totals: Map<string, number> = new Map()): Promise<Map<string, number>> {
    const sums = new Map<string, number>();
    for (const lease of await this.list()) {
      for (const { uuid } of lease.devices) {
        sums.set(uuid, (sums.get(uuid) ?? 0) + (lease.bytes ?? totals.get(uuid) ?? 0));
      }
    }
    return sums;
  }

  /**
   * Frees the leases of crashed owners on this host: the owner and every process of its job are gone, and (where
   * `devices` can tell) so is their memory. A living owner's lease stays, however late its renewal is. Returns the owners.
   */
  async reap(devices: LeaseDevice[]): Promise<string[]> {
    const freed: string[] = [];
    for (const lease of await this.list()) {
      if (lease.host !== hostName() || ownerLives(lease)) continue;
      if (lease.boot === bootId() && (await jobLives(lease))) continue;
      if (lease.boot !== bootId() && lease.boot.split('/')[0] === bootId().split('/')[0]) {
        // Another pid namespace of this machine: its processes cannot be seen from here, only its silence
        if (lease.expires_at + 10 * this.#times.ttlMs > Date.now()) continue;
      }
      if (memoryHeld(lease, devices)) continue;
      if (await this.free(lease)) freed.push(lease.owner);
    }
    return freed;
  }

  /** Frees a lease, if it still is as it was read. */
  async free(lease: LeaseRecord): Promise<boolean> {
    return (await this.#run(scripts.FREE, [lease.owner, '', lease.text])) === 1;
  }

  /** Frees what an owner holds, for who answers for the job now and knows that nothing of it is left. */
  async forget(owner: string): Promise<void> {
    await this.#run(scripts.FREE, [owner, '', '']);
  }

  renew(owner: string, instance: string): Promise<boolean> {
    return this.#run(scripts.RENEW, [owner, instance, this.#times.ttlMs]).then((reply) => reply === 1);
  }

  async beside(owner: string, instance: string): Promise<string[]> {
    const text = await this.#connection.redis.hget(this.#keys.leases, owner);
    const lease = text === null ? null : readLease(owner, text);
    return lease?.instance === instance ? lease.beside : [];
  }

  async attach(owner: string, instance: string, supervisorPid: number, dir: string): Promise<void> {
    const start = startTime(supervisorPid);
    if (start === null) return; // it has ended already
    await this.#run(scripts.ATTACH, [owner, instance, JSON.stringify({ pid: supervisorPid, start, dir })]);
  }

  async resize(owner: string, instance: string, bytes: number | null, devices: LeaseDevice[]): Promise<number> {
    const wanted = { bytes: bytes ?? undefined, devices: devices.map(toRequest) };
    return Number(await this.#run(scripts.RESIZE, [owner, instance, JSON.stringify(wanted)]));
  }

  async release(owner: string, instance: string): Promise<void> {
    await this.#run(scripts.FREE, [owner, instance, '']);
  }

  #run(script: Script, args: (string | number)[]): Promise<unknown> {
    const { leases, leaseQueue, wake, events, refused } = this.#keys;
    return script.run(this.#connection.redis, [leases, leaseQueue, wake, events, refused], args);
  }
}
