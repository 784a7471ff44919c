/**
 * Redis, and everything that oomtune keeps there. `openStore({ url })` connects within 5 s or throws OOMTUNE_REDIS_UNREACHABLE;
 * `url` null: the embedded Redis. Later outages are waited out, and told on stderr or to `onOutage`.
 */
import type { Log } from '../common/log.js';
import { remedyOf, replyInWords } from '../common/refusal.js';
import type { RedisStatus } from '../contract/verbs.js';
import { Connection, type OutageListener, type OutageState } from './connection.js';
import { Durations } from './durations.js';
import { embeddedStatus } from './embedded.js';
import { Events } from './events.js';
import { Follower } from './follower.js';
import { Hosts } from './hosts.js';
import { JobStore } from './jobs.js';
import { keysUnder } from './keys.js';
import { LEASE_TIMES, LeaseStore, type LeaseTimes } from './leases.js';
import { LogTails } from './logs.js';
import { MemoryTraces } from './memory-traces.js';
import { NotifyStore } from './notify.js';
import { Pairs } from './pairs.js';
import { QueueEntries } from './queue-entries.js';
import { ReadersRedis } from './readers.js';
import { RecommendationStore } from './recommendations.js';
import { checkRedisIsSafe, checkRedisTakesWrites, refusalOfWrites, serverFacts } from './safety.js';
import { Sweeps } from './sweeps.js';
import { Usage } from './usage.js';

export { stopEmbeddedRedis as stopRedis } from './embedded.js';
export { type FairShare, fairShare, type Limits, limitsOf, readFairShare } from './fair-share.js';
export type { Follower, StreamEvent } from './follower.js';
export { HEARTBEAT_MS, type KnownHost, LOST_MS } from './hosts.js';
export { newJobId } from './job-id.js';
export type { Standing } from './job-reader.js';
export type { StoredJob } from './job-record.js';
export { NOT_LAUNCHED, type PatchResult, type Restored, tooManyWait } from './jobs.js';
export { reservedBy } from './lease-record.js';
export type { LeaseStore, LeaseTimes } from './leases.js';
export type { LogTails } from './logs.js';
export type { MemoryTrace } from './memory-traces.js';
export { jobsLike, type NamedJob, namedJob, noSuchJob } from './named-job.js';
export { patient } from './patient.js';
export { hostName, isAlive, processOf, thisProcess } from './process-identity.js';
export type { ReadersRedis } from './readers.js';
export type { RecommendationStore } from './recommendations.js';
export { isWrongType, type Reply } from './replies.js';
export { isRefusal, retry } from './retry.js';
export { shortWait } from './short-wait.js';
export { parseRedisUrl } from './url.js';

export type Store = Awaited<ReturnType<typeof openStore>>;

export interface StoreOptions {
  /** `redis://`, `rediss://` or `unix://`; null or absent: the embedded Redis, started if it does not run. */
  url?: string | null;
  onOutage?: OutageListener;
  /** Aborted: the first try is given up. */
  signal?: AbortSignal;
  leaseTimes?: Partial<LeaseTimes>;
  /** For tests: a host that has been silent for this long is lost. */
  lostMs?: number;
}

/** Throws OOMTUNE_REDIS_UNREACHABLE, OOMTUNE_REDIS_MISSING, OOMTUNE_REDIS_UNSAFE or OOMTUNE_USAGE. */
export async function openStore(options: StoreOptions = {}) {
  const url = options.url || null;
  const keys = keysUnder();
  const connection = await Connection.open(url, options.onOutage ?? sayOutage, options.signal);
  const { redis, target } = connection;
  const events = new Events(connection, keys);
  return {
    /** Without user and password. */
    url: target.shown,
    /** As given: with the password; null for the embedded Redis. Never show it. */
    secretUrl: url,
    connection,
    keys,
    recommendations: new RecommendationStore(redis, keys),
    jobs: new JobStore(redis, keys, options.lostMs),
    events,
    logs: new LogTails(connection, keys),
    memory: new MemoryTraces(redis, keys),
    leasing: new LeaseStore(connection, keys, events, { ...LEASE_TIMES, ...options.leaseTimes }),
    usage: new Usage(redis, keys, options.leaseTimes?.halfLifeMs),
    durations: new Durations(redis, keys),
    pairs: new Pairs(redis, keys),
    notify: new NotifyStore(redis, keys),
    sweeps: new Sweeps(redis, keys, events),
    hosts: new Hosts(redis, keys),
    queues: new QueueEntries(connection, keys),
    /** How many wait for a lease, configurations are recorded, and records were refused. */
    async counts() {
      const [leaseWaiters, recommendations, refusedRecords] = await Promise.all([
        redis.hlen(keys.leaseQueue),
        redis.zcard(keys.configs),
        redis.llen(keys.refused),
      ]);
      return { leaseWaiters, recommendations, refusedRecords };
    },
    /** Tells what happens as it happens, on a connection of its own. */
    follower: (log: Log) => new Follower(connection, keys, log),
    /** Copies of the recommendations, for other programs of the machine. */
    readers: (folder: string, log: Log) => new ReadersRedis(folder, redis, keys, log),
    /** Throws OOMTUNE_REDIS_UNSAFE where strangers could write to it. */
    checkSafe: (safety: { allowInsecure: boolean }) => checkRedisIsSafe(redis, target, safety),
    /** Throws what it refuses writes with. */
    checkWrites: () => checkRedisTakesWrites(redis, keys),
    /** Its answer to all who write; null: it takes that. */
    refusalOfWrites: () => refusalOfWrites(redis, keys),
    close: async () => connection.close(),
  };
}

/** The Redis in use, without starting one. Throws OOMTUNE_REDIS_UNREACHABLE for a URL that does not answer. */
export async function redisStatus(options: { url?: string | null } = {}): Promise<RedisStatus> {
  if (!options.url) return embeddedStatus();
  const store = await openStore(options);
  try {
    const info = await store.connection.redis.info();
    return { running: true, url: store.url, embedded: false, ...serverFacts(info), folder: null };
  } finally {
    await store.close();
  }
}

function sayOutage(state: OutageState, shown: string, why: string): void {
  process.stderr.write(
    state === 'lost'
      ? `oomtune: Redis at ${shown} does not answer. What is to be read or written there waits; a running job goes on.\n  ${why}\n`
      : state === 'refuses'
        ? `oomtune: Redis at ${shown} answers with an error: ${endless(replyInWords(why))}. What is to be read or written there waits; a running job goes on.\n  ${remedyOf(why, shown) ?? 'Its log may say why.'}\n`
        : 'oomtune: Redis is back\n',
  );
}

/** A text before a full stop of ours. */
const endless = (text: string): string => text.replace(/\.$/, '');
