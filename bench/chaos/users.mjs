// Those who submitted the jobs: they cancel, hold, release and wait, whatever Redis does meanwhile.
import { setMaxListeners } from 'node:events';
import { draws, insist, sleep } from './world.mjs';

/** A job that is on hold for this long (ms) is released: its first release may be lost with Redis's data. */
const HELD_MS = 5000;

export class Users {
  /** What those who wait were told: by job, its end state or the code of an error. */
  told = new Map();
  #world;
  #random = draws(7);
  #held = new Map();
  #ended = new AbortController();
  #steering;

  constructor(world) {
    this.#world = world;
    setMaxListeners(0, this.#ended.signal);
    this.#steering = this.#steer();
  }

  /** Waits for every fifth job, and holds those that are to be held. */
  follow(job, kind) {
    const { daemonApi, store } = this.#world;
    if (kind.hold) daemonApi.holdJob(store, job).catch(() => {}); // it has begun
    if (this.#random() > 0.2) return;
    daemonApi.waitForJobs(store, [job], this.#ended.signal).then(
      ([ended]) => this.told.set(job, ended.state),
      (error) => this.told.set(job, error.code ?? String(error)),
    );
  }

  async close() {
    this.#ended.abort(new Error('not told'));
    await this.#steering;
  }

  /** Again and again: Redis may forget what it was asked for. */
  async #steer() {
    const { store, jobs } = this.#world;
    for (; !this.#ended.signal.aborted; await sleep(500)) {
      for (const { job, state, cancelAsked } of await insist(() => store.jobs.live())) {
        if (jobs.get(job)?.name === 'cancelled' && cancelAsked === null) await this.#cancel(job, state);
        if (state === 'held') await this.#release(job);
        else this.#held.delete(job);
      }
    }
  }

  /** Some in their queue, some once they run. */
  async #cancel(job, state) {
    const { daemonApi, store } = this.#world;
    if (state !== 'running' && job.charCodeAt(job.length - 1) % 2 === 0) return;
    await insist(() => daemonApi.cancelJob(store, job).catch(unlessGone));
  }

  async #release(job) {
    const { daemonApi, store } = this.#world;
    const since = this.#held.get(job) ?? Date.now();
    this.#held.set(job, since);
    if (Date.now() - since > HELD_MS) await insist(() => daemonApi.releaseJob(store, job).catch(unlessGone));
  }
}

/** It was lost, or has ended: whether that is right is found at the end. */
export function unlessGone(error) {
  if (error.code !== 'OOMTUNE_NO_SUCH_JOB' && error.code !== 'OOMTUNE_USAGE') throw error;
}
