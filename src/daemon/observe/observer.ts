import type { Log } from '../../common/log.js';
import type { Runtime } from '../../runtime/types.js';
import type { Follower, Store } from '../../store/index.js';
import { Sampler } from './sampler.js';

/** What a daemon sees of jobs whether or not somebody looks at its page: events as they happen, and memory over time. */
export class Observer {
  readonly follower: Follower;
  readonly sampler: Sampler;

  constructor(store: Store, runtime: Runtime, log: Log) {
    this.follower = store.follower(log);
    this.sampler = new Sampler(store, runtime, log);
  }

  /** Whoever listens is told the last `past` events first, at least one. */
  async start(past = 1): Promise<void> {
    await this.follower.start(past);
    this.follower.onEvent(({ type }) => type === 'lease' && this.sampler.wake());
    this.sampler.start();
  }

  async close(): Promise<void> {
    this.follower.close();
    await this.sampler.close();
  }
}
