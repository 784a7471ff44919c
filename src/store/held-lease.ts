import { OomtuneError } from '../common/errors.js';
import type { LeaseDevice } from './lease-request.js';
import type { LeaseStore, LeaseTimes } from './leases.js';
import { outlast } from './outlast.js';

const RELEASE_MS = 10_000;

/** A reservation that is renewed until it is released. */
export class HeldLease<D extends LeaseDevice> {
  devices: D[];
  /** Bytes of each device that strangers held when it was granted. */
  readonly foreign: number[];
  readonly #store: LeaseStore;
  readonly #owner: string;
  readonly #instance: string;
  readonly #timer: NodeJS.Timeout;
  #released = false;

  constructor(
    store: LeaseStore,
    owner: string,
    instance: string,
    { devices, foreign }: { devices: D[]; foreign: number[] },
    { renewMs }: LeaseTimes,
  ) {
    this.#store = store;
    this.#owner = owner;
    this.#instance = instance;
    this.devices = devices;
    this.foreign = foreign;
    this.#timer = setInterval(() => {
      store.renew(owner, instance).catch(() => {}); // Redis is away: nobody frees a lease whose owner lives
    }, renewMs);
    this.#timer.unref();
  }

  async attach(run: { supervisorPid: number; dir: string }): Promise<void> {
    const { onRefused } = this.#store;
    await outlast(() => this.#store.attach(this.#owner, this.#instance, run.supervisorPid, run.dir), { onRefused });
  }

  /** Owners who have shared a device with this one at some time so far. */
  async beside(): Promise<string[]> {
    return this.#store.beside(this.#owner, this.#instance);
  }

  async resize(bytes: number | null): Promise<void> {
    const { onRefused } = this.#store;
    const done = await outlast(() => this.#store.resize(this.#owner, this.#instance, bytes, this.devices), {
      onRefused,
    });
    if (done === 1) return;
    throw new OomtuneError(
      'OOMTUNE_LEASE_LOST',
      done === 0 ? 'The lease on the device is gone.' : 'The lease on the device cannot grow: others share the device.',
      'Run the job again; it waits until the device is free.',
    );
  }

  /**
   * Returns when it is released, or after ten seconds of refusals: it is then tried on. A command that ends meanwhile leaves
   * a lease without an owner, which others free.
   */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    clearInterval(this.#timer);
    const { onRefused } = this.#store;
    const done = outlast(() => this.#store.release(this.#owner, this.#instance), { onRefused, idle: true });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, RELEASE_MS);
    });
    await Promise.race([done, late]);
    clearTimeout(timer);
  }
}
