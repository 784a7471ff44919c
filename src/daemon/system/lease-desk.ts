import { statSync } from 'node:fs';
import type { Device } from '../../contract/launch.js';
import type { LeaseWish } from '../../contract/system.js';
import type { Runtime } from '../../runtime/types.js';
import type { LeaseRequest } from '../../store/lease-request.js';
import type { Lease, Leasing } from '../../worker/types.js';
import { noSuchReservation } from './visible.js';

/** Reservations held for somebody outside of the daemon, each under a number: of one agent's job, or of one client. */
export class LeaseDesk {
  readonly #held = new Map<number, Lease>();
  #last = 0;
  #done = false;

  constructor(
    private readonly runtime: Pick<Runtime, 'devices'>,
    /** Whose processes the reservations may stand for. */
    private readonly uid: number,
    private readonly onDone: () => void = () => {},
  ) {}

  /** Nothing is held here any more, and nothing will be. */
  done(): void {
    if (!this.#done) this.onDone();
    this.#done = true;
  }

  /** The devices are this machine's as the driver tells them: what the caller thinks of them is not asked. */
  async acquire(
    leasing: Leasing,
    wish: LeaseWish,
    more: Pick<LeaseRequest, 'owner' | 'signal' | 'onWait'> & Partial<LeaseRequest>,
  ): Promise<{ lease: number; devices: Device[]; foreign: number[] }> {
    const named = async () => (await this.runtime.devices()).filter(({ uuid }) => wish.devices.includes(uuid));
    const lease = await leasing.acquire({ ...wish, refresh: named, ...more, devices: await named() });
    if (more.signal.aborted) {
      await lease.release(); // given up in the moment in which it was granted: nobody knows of it
      throw more.signal.reason;
    }
    this.#last += 1;
    this.#held.set(this.#last, lease);
    return { lease: this.#last, devices: lease.devices, foreign: lease.foreign };
  }

  async attach(lease: number, run: { supervisorPid: number; dir: string }): Promise<void> {
    if (this.#isTheirs(run.supervisorPid)) await this.#of(lease).attach(run);
  }

  resize(lease: number, bytes: number | null): Promise<void> {
    return this.#of(lease).resize(bytes);
  }

  beside(lease: number): Promise<string[]> {
    return this.#of(lease).beside();
  }

  async release(lease: number): Promise<void> {
    const held = this.#held.get(lease);
    this.#held.delete(lease);
    await held?.release();
  }

  async leave(lease: number, dir: string, pids: number[]): Promise<void> {
    const held = this.#of(lease);
    this.#held.delete(lease);
    await held.leave(
      dir,
      pids.filter((pid) => this.#isTheirs(pid)),
    );
  }

  /** Gives back all that is left, for somebody who is done. */
  async releaseAll(): Promise<void> {
    this.done();
    await Promise.all([...this.#held.keys()].map((lease) => this.release(lease)));
  }

  /** Leaves all to what runs: who comes next for the job takes it over, and without a run it is freed. */
  async leaveAll(): Promise<void> {
    this.done();
    await Promise.all([...this.#held.keys()].map((lease) => this.leave(lease, '/', [])));
  }

  #of(lease: number): Lease {
    const held = this.#held.get(lease);
    if (held !== undefined) return held;
    throw noSuchReservation();
  }

  /** A reservation cannot be kept alive by a process of somebody else. */
  #isTheirs(pid: number): boolean {
    return statSync(`/proc/${pid}`, { throwIfNoEntry: false })?.uid === this.uid;
  }
}
