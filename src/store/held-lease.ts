import { setTimeout as delay } from 'node:timers/promises';
import { OomtuneError } from '../common/errors.js';
import { aborted, waitAtMost } from '../common/within.js';
import type { Device } from '../contract/launch.js';
import type { LeasePromise } from '../contract/state.js';
import type { LeaseFiles } from './lease-files.js';
import { startTime } from './process-identity.js';
import { retry } from './retry.js';

const RELEASE_MS = 10_000;
const BESIDE_MS = 10_000;
/** For somebody who waits for their prompt. */
const INTERRUPTED_MS = 500;

/** The leases in Redis, as their holder needs them; `instance` tells this reservation from a later one of the owner. */
interface Leases {
  readonly files: LeaseFiles;
  readonly onRefused: (error: Error) => void;
  /** Calls back each time when the connection is there again; returns how to stop. */
  whenBack(listener: () => void): () => void;
  renew(owner: string, instance: string): Promise<boolean>;
  restore(promise: LeasePromise): Promise<boolean>;
  beside(owner: string, instance: string): Promise<string[]>;
  attach(owner: string, instance: string, supervisor: LeasePromise['supervisors'][number]): Promise<boolean>;
  resize(owner: string, instance: string, bytes: number | null, devices: Device[]): Promise<number>;
  release(owner: string, instance: string): Promise<void>;
  leave(instance: string): void;
}

/** A reservation, renewed until it is released, and restored if Redis lost it. */
export class HeldLease {
  devices: Device[];
  /** Bytes of each device that strangers held when it was granted. */
  readonly foreign: number[];
  readonly #timer: NodeJS.Timeout;
  readonly #stop: () => void;
  #released = false;

  constructor(
    private readonly leases: Leases,
    private promise: LeasePromise,
    { devices, foreign }: { devices: Device[]; foreign: number[] },
    { renewMs }: { renewMs: number },
    private readonly interrupted?: AbortSignal,
  ) {
    this.devices = devices;
    this.foreign = foreign;
    leases.files.write(promise);
    const renew = () => {
      this.#renew().catch(() => {}); // Redis is away, or would not: nobody frees a lease whose owner lives
    };
    this.#timer = setInterval(renew, renewMs);
    this.#timer.unref();
    this.#stop = leases.whenBack(renew);
  }

  /** Tells whose life the lease stands for: if the owner dies, it is freed only when this supervisor is gone too. */
  async attach(run: { supervisorPid: number; dir: string }): Promise<void> {
    const start = startTime(run.supervisorPid);
    if (start === null) return; // it has ended already
    const supervisor = { pid: run.supervisorPid, start, dir: run.dir };
    this.promise = { ...this.promise, supervisors: [...this.promise.supervisors, supervisor].slice(-4) };
    this.leases.files.write(this.promise);
    const { owner, instance } = this.promise;
    const done = await this.#retry(() => this.leases.attach(owner, instance, supervisor));
    if (!done) await this.#restore();
  }

  /** Owners who have shared a device with this one at some time so far. Throws what Redis refuses for ten seconds: they are only told. */
  async beside(): Promise<string[]> {
    const { owner, instance } = this.promise;
    const { onRefused } = this.leases;
    return retry(() => this.leases.beside(owner, instance), { onRefused, mostMs: BESIDE_MS });
  }

  /** Changes the reserved bytes: a whole device while searching, the predicted peak after. */
  async resize(bytes: number | null): Promise<void> {
    const { owner, instance } = this.promise;
    const resize = () => this.#retry(() => this.leases.resize(owner, instance, bytes, this.devices));
    let done = await resize();
    if (done === 0 && (await this.#restore())) done = await resize();
    if (done === 1) {
      this.promise = { ...this.promise, bytes };
      this.leases.files.write(this.promise);
      return;
    }
    throw new OomtuneError(
      'OOMTUNE_LEASE_LOST',
      done === 0 ? 'The lease on the device is gone.' : 'The lease on the device cannot grow: others share the device.',
      'Run the job again; it waits until the device is free.',
    );
  }

  /** Returns when it is released, or after ten seconds of refusals (half a one once interrupted). Others free an ownerless lease. */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    this.#stop();
    clearInterval(this.#timer);
    const { owner, instance } = this.promise;
    this.leases.files.remove(this.promise); // first: from here on nobody writes it back
    const { onRefused } = this.leases;
    const released = retry(() => this.leases.release(owner, instance), { onRefused, idle: true });
    const late = this.interrupted === undefined ? [] : [aborted(this.interrupted).then(() => delay(INTERRUPTED_MS))];
    await waitAtMost(Promise.race([released, ...late]), RELEASE_MS);
  }

  /** Leaves it to processes that cannot be ended: whoever reaps leases frees it when they and their memory are gone. */
  async leave(dir: string, pids: number[]): Promise<void> {
    for (const supervisorPid of pids) await this.attach({ supervisorPid, dir });
    this.#released = true;
    this.#stop();
    clearInterval(this.#timer);
    this.leases.leave(this.promise.instance);
  }

  async #renew(): Promise<void> {
    const { owner, instance } = this.promise;
    if (await this.leases.renew(owner, instance)) return;
    if (!this.#released) await this.leases.restore(this.promise);
  }

  /** Whether it was lost and is back. */
  async #restore(): Promise<boolean> {
    return !this.#released && (await this.#retry(() => this.leases.restore(this.promise)));
  }

  #retry<T>(task: () => Promise<T>): Promise<T> {
    return retry(task, { onRefused: this.leases.onRefused });
  }
}
