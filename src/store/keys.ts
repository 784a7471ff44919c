import { OomtuneError } from '../common/errors.js';

/**
 * Every key that oomtune has in Redis. The prefix is a hash tag, so that all of them stand in one slot of a Cluster and
 * can be changed by one script.
 */
export class Keys {
  /** `{oomtune}`; BullMQ gets the same. */
  readonly prefix: string;

  /** `word`: OOMTUNE_PREFIX, default `oomtune`. */
  constructor(word = process.env.OOMTUNE_PREFIX || 'oomtune') {
    if (!/^[\w.-]{1,64}$/.test(word)) {
      throw new OomtuneError(
        'OOMTUNE_USAGE',
        `Expected OOMTUNE_PREFIX to be a word of letters, digits, "_", "-" and ".", got "${word}".`,
        'Choose such a word, or unset OOMTUNE_PREFIX to use "oomtune".',
      );
    }
    this.prefix = `{${word}}`;
  }

  /** HASH: a recommendation, as other programs read it. */
  config = (key: string): string => `${this.prefix}:config:${key}`;
  /** ZSET: keys of recommendations by the time verified (ms). */
  get configs(): string {
    return `${this.prefix}:configs`;
  }
  /** STREAM, bounded: what happened. */
  get events(): string {
    return `${this.prefix}:events`;
  }
  /** HASH: a job's record. */
  job = (id: string): string => `${this.prefix}:job:${id}`;
  /** Whatever else somebody put where a job's record was, kept. */
  aside = (id: string, ms: number): string => `${this.prefix}:aside:${id}:${ms}`;
  /** ZSET: all jobs by the time submitted (ms). */
  get jobs(): string {
    return `${this.prefix}:jobs`;
  }
  /** ZSET: jobs that have not ended, by the time submitted (ms). */
  get live(): string {
    return `${this.prefix}:live`;
  }
  /** SET: jobs that are to be put into a queue (just submitted, released, or waiting for another job). */
  get pending(): string {
    return `${this.prefix}:pending`;
  }
  /** HASH: routing labels that queues were made for → what they ask of a host (JSON). */
  get labels(): string {
    return `${this.prefix}:labels`;
  }
  /** STREAM, bounded: the tail of a job's output. */
  log = (id: string): string => `${this.prefix}:log:${id}`;
  /** STRING that expires: what a job held over time, as JSON. */
  memory = (id: string): string => `${this.prefix}:memory:${id}`;
  /** STRING that expires: the configuration of a sweep is found. */
  sweep = (id: string): string => `${this.prefix}:sweep:${id}`;
  /** LIST, bounded, that expires: seconds that the last jobs of a name took. */
  durations = (name: string): string => `${this.prefix}:durations:${name}`;
  /** HASH: leases by owner. */
  get leases(): string {
    return `${this.prefix}:leases`;
  }
  /** HASH: who waits for a lease, and since when. */
  get leaseQueue(): string {
    return `${this.prefix}:lease-queue`;
  }
  /** STRING that expires: a host whose daemon lives. */
  host = (name: string): string => `${this.prefix}:host:${name}`;
  /** ZSET: hosts by the time last seen (ms). */
  get hosts(): string {
    return `${this.prefix}:hosts`;
  }
  /** LIST, bounded: records that were refused, as JSON with the reason. */
  get refused(): string {
    return `${this.prefix}:refused`;
  }
  /** Pub/sub channel: something changed that daemons and waiters look for. */
  get wake(): string {
    return `${this.prefix}:wake`;
  }
}
