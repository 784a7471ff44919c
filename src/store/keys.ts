import { usageError } from '../common/errors.js';

/** Every key of oomtune in Redis, under a hash tag: one Cluster slot, so one script may change them all. Throws OOMTUNE_USAGE. */
export function keysUnder(word = process.env.OOMTUNE_PREFIX || 'oomtune') {
  if (!/^[\w.-]{1,64}$/.test(word)) {
    throw usageError(
      `Expected OOMTUNE_PREFIX to be a word of letters, digits, "_", "-" and ".", got "${word}".`,
      'Choose such a word, or unset OOMTUNE_PREFIX to use "oomtune".',
    );
  }
  const prefix = `{${word}}`;
  return {
    /** `{oomtune}`; BullMQ gets the same. */
    prefix,
    /** HASH: a recommendation, as other programs read it. */
    config: (key: string): string => `${prefix}:config:${key}`,
    /** ZSET: keys of recommendations by the time verified (ms). */
    configs: `${prefix}:configs`,
    /** ZSET: keys of recommendations of knobs of a command's own, likewise. */
    knobs: `${prefix}:knobs`,
    /** STREAM, bounded: what happened. */
    events: `${prefix}:events`,
    /** HASH: a job's record. */
    job: (id: string): string => `${prefix}:job:${id}`,
    /** Whatever else somebody put where a job's record was, kept. */
    aside: (id: string, ms: number): string => `${prefix}:aside:${id}:${ms}`,
    /** ZSET: all jobs by the time submitted (ms). */
    jobs: `${prefix}:jobs`,
    /** ZSET: jobs that have not ended, by the time submitted (ms). */
    live: `${prefix}:live`,
    /** SET: jobs that are to be put into a queue (just submitted, released, or waiting for another job). */
    pending: `${prefix}:pending`,
    /** HASH: routing labels that queues were made for → what they ask of a host (JSON). */
    labels: `${prefix}:labels`,
    /** STREAM, bounded: the tail of a job's output. */
    log: (id: string): string => `${prefix}:log:${id}`,
    /** STRING that expires: what a job held over time, as JSON. */
    memory: (id: string): string => `${prefix}:memory:${id}`,
    /** STRING that expires: the configuration of a sweep is found. */
    sweep: (id: string): string => `${prefix}:sweep:${id}`,
    /** LIST, bounded, that expires: seconds that the last jobs of a name took. */
    durations: (name: string): string => `${prefix}:durations:${name}`,
    /** STRING that expires: whether jobs of these names are worth having side by side on this model of GPU, as JSON. */
    pair: (model: string, first: string, second: string): string => `${prefix}:pair:${model}:${first}:${second}`,
    /** HASH: leases by owner. */
    leases: `${prefix}:leases`,
    /** HASH: who waits for a lease, and since when. */
    leaseQueue: `${prefix}:lease-queue`,
    /** HASH: what each user has used lately, in device-seconds. */
    usage: `${prefix}:usage`,
    /** STRING that expires: a host whose daemon lives. */
    host: (name: string): string => `${prefix}:host:${name}`,
    /** ZSET: hosts by the time last seen (ms). */
    hosts: `${prefix}:hosts`,
    /** HASH: jobs that somebody is to be told of → what was told (JSON). */
    notify: `${prefix}:notify`,
    /** LIST, bounded: records that were refused, as JSON with the reason. */
    refused: `${prefix}:refused`,
    /** Pub/sub channel: something changed that daemons and waiters look for. */
    wake: `${prefix}:wake`,
  };
}

export type Keys = Readonly<ReturnType<typeof keysUnder>>;

/** What keys hold, as TYPE says it, by the first word after the prefix. */
const TYPES: Record<string, string> = {
  ...{ config: 'hash', configs: 'zset', knobs: 'zset', events: 'stream' },
  ...{ job: 'hash', jobs: 'zset', live: 'zset', pending: 'set', labels: 'hash' },
  ...{ log: 'stream', memory: 'string', sweep: 'string', durations: 'list', pair: 'string' },
  ...{ leases: 'hash', 'lease-queue': 'hash', usage: 'hash', host: 'string', hosts: 'zset' },
  ...{ notify: 'hash', refused: 'list' },
};

/** Whether a key of oomtune may be of this type. */
export function mayBe(key: string, type: string): boolean {
  const [, word = ''] = /^\{[^}]*\}:([^:]*)/.exec(key) ?? [];
  return type === 'none' || (TYPES[word] ?? type) === type;
}
