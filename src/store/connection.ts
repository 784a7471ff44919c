import { setTimeout as delay } from 'node:timers/promises';
import { Redis, type RedisOptions } from 'ioredis';
import { OomtuneError } from '../common/errors.js';
import { passwordRemedy, refusal, remedyOf, replyInWords } from '../common/refusal.js';
import { ToldLately } from '../common/told-lately.js';
import { aborted } from '../common/within.js';
import { ensureEmbeddedRedis, wasStopped } from './embedded.js';
import { parseRedisUrl, type RedisTarget, unixUrl } from './url.js';

/** `refuses`: it answers with errors. */
export type OutageState = 'lost' | 'refuses' | 'back';

/** Called when Redis goes (`why`: what to do), comes back, or refuses a write that has to be made (`why`: its error). */
export type OutageListener = (state: OutageState, shown: string, why: string) => void;

const CONNECT_MS = 5000;
const REFUSAL_MS = 1000;
const PING_EVERY_MS = 5000;
/** Without an answer for this long the connection is made anew: a cut cable sends no farewell. */
const SILENT_MS = 15_000;

/** Connections to one Redis. The first try fails fast; a connected client waits through an outage and says so once. */
export class Connection {
  readonly redis: Redis;
  #subscriber: Redis | null = null;
  readonly #others = new Set<Redis>();
  #watch: NodeJS.Timeout | null = null;
  #lost = false;
  readonly #told = new ToldLately();
  #closed = false;

  private constructor(
    readonly target: RedisTarget,
    readonly embedded: boolean,
    private listener: OutageListener,
  ) {
    this.redis = this.#client({ lazyConnect: true });
  }

  /** `url` null: the embedded Redis, started if need be. Throws OOMTUNE_REDIS_UNREACHABLE, OOMTUNE_REDIS_MISSING, OOMTUNE_USAGE, the signal's reason. */
  static async open(url: string | null, listener: OutageListener, signal?: AbortSignal): Promise<Connection> {
    const target = parseRedisUrl(url ?? unixUrl(await ensureEmbeddedRedis()));
    const connection = new Connection(target, url === null, listener);
    await connection.#firstTry(signal);
    return connection;
  }

  /** Another connection of the same kind, for commands that block. Closed with the rest. */
  another(options: RedisOptions = {}): Redis {
    const redis = this.#client(options);
    this.#others.add(redis);
    redis.once('end', () => this.#others.delete(redis));
    return redis;
  }

  get ready(): boolean {
    return this.redis.status === 'ready';
  }

  /** Calls `listener` each time that the connection is back; returns how to stop. */
  onReady(listener: () => void): () => void {
    this.redis.on('ready', listener);
    return () => this.redis.off('ready', listener);
  }

  /** The one connection that listens to channels. */
  get subscriber(): Redis {
    this.#subscriber ??= this.another();
    return this.#subscriber;
  }

  set onOutage(listener: OutageListener) {
    this.listener = listener;
  }

  /** Tells of an error that somebody waits out. */
  readonly onRefused = (error: Error): void => {
    // Several scripts are refused for one reason
    if (this.#closed || !this.#told.isDue(replyInWords(error.message))) return;
    this.listener('refuses', this.target.shown, error.message.slice(0, 400));
  };

  close(): void {
    this.#closed = true;
    if (this.#watch !== null) clearInterval(this.#watch);
    for (const redis of [this.redis, ...this.#others]) redis.disconnect();
  }

  #client(options: RedisOptions): Redis {
    const redis = new Redis({
      ...this.target.options,
      connectTimeout: CONNECT_MS,
      maxRetriesPerRequest: null,
      autoResendUnfulfilledCommands: true,
      enableReadyCheck: true,
      disableClientInfo: true,
      protocol: 2,
      retryStrategy: (times) => (this.#closed ? null : Math.min(50 * times, 1000)),
      ...options,
    });
    // Told by the outage listener; each call that fails rejects by itself
    redis.on('error', (error: Error & { command?: { name: string } }) => {
      if (error.command?.name !== 'select') return;
      if (this.#watch !== null) this.onRefused(error); // the first try throws it
      redis.disconnect(!this.#closed); // it would go on in database 0, which is somebody else's
    });
    return redis;
  }

  async #firstTry(signal?: AbortSignal): Promise<void> {
    let last: Error | null = null;
    this.redis.on('error', (error: Error) => {
      last = error;
    });
    let timer: NodeJS.Timeout | undefined;
    const failed = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(last ?? new Error('no answer within 5 s')), CONNECT_MS);
      this.redis.once('close', () => reject(last ?? new Error('closed')));
      if (signal !== undefined) void aborted(signal).then(() => reject(signal.reason));
    });
    failed.catch(() => {});
    try {
      await Promise.race([this.redis.connect().then(() => this.#greet()), failed]);
    } catch (error) {
      this.close();
      if (signal?.aborted) throw signal.reason;
      throw unreachable(this.target.shown, last ?? (await this.#refusal()) ?? error);
    } finally {
      clearTimeout(timer);
    }
    this.redis.on('close', () => void this.#revive());
    this.redis.on('ready', () => this.#tell(false));
    this.#watchOver();
  }

  /** What one that is not ready yet answers: the client waits until it has loaded its data, and tells nobody. Null: nothing. */
  async #refusal(): Promise<Error | null> {
    const redis = new Redis({
      ...this.target.options,
      ...{ lazyConnect: true, enableReadyCheck: false, disableClientInfo: true, retryStrategy: () => null },
    });
    redis.on('error', () => {});
    const asked = redis.ping().then(
      () => null,
      (error: unknown) => (error instanceof Error && error.name === 'ReplyError' ? error : null),
    );
    const answer = await Promise.race([asked, delay(REFUSAL_MS, null)]);
    redis.disconnect();
    return answer;
  }

  /** One that cannot save its data answers all the same, and can be read from. */
  async #greet(): Promise<void> {
    await this.redis.ping().catch((error: unknown) => {
      if (!(error instanceof Error && error.message.startsWith('MISCONF'))) throw error;
    });
  }

  /** The server that a reconnecting client waits for has to come from somewhere: the embedded one from us. */
  async #revive(): Promise<void> {
    if (this.#closed) return;
    this.#tell(true);
    if (!this.embedded || wasStopped()) return;
    await ensureEmbeddedRedis().catch(() => {});
  }

  #watchOver(): void {
    let asked = 0;
    this.#watch = setInterval(() => {
      if (this.redis.status !== 'ready') {
        if (asked !== 0 && Date.now() - asked > SILENT_MS) {
          asked = Date.now();
          this.redis.disconnect(true);
        }
        return;
      }
      if (asked !== 0) {
        this.#tell(true);
        if (Date.now() - asked > SILENT_MS) {
          asked = Date.now();
          this.redis.disconnect(true);
          for (const redis of this.#others) redis.disconnect(true);
        }
        return;
      }
      asked = Date.now();
      this.redis
        .ping()
        .then(() => this.#tell(false))
        .catch(() => {})
        .finally(() => {
          asked = 0;
        });
    }, PING_EVERY_MS);
    this.#watch.unref();
  }

  #tell(lost: boolean): void {
    if (this.#lost === lost || this.#closed) return;
    this.#lost = lost;
    const remedy = this.embedded
      ? '`oomtune redis status` tells of it, and `oomtune status` starts it.'
      : 'Start it again, or see why this host does not reach it.';
    this.listener(lost ? 'lost' : 'back', this.target.shown, lost ? remedy : '');
  }
}

/** Errors of the system or ioredis, and how to say them. */
const WHY: [RegExp, string][] = [
  [/ECONNREFUSED/, 'nothing listens there'],
  [/ENOENT/, 'there is no such socket'],
  [/EACCES/, 'permission denied'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host is not known'],
  [/ETIMEDOUT|no answer|timeout/i, 'no answer within 5 s'],
  [/DB index is out of range/, 'it has no such database'],
  [/RESP type|Protocol error/i, 'what answers there is no Redis'],
  [/^(closed|Connection is closed\.?)$|ECONNRESET/, 'it closes the connection at once'],
];

/** What helps where the URL is that of a Redis: by what the error says, and the beginning of the URL. */
const REMEDIES: [RegExp, RegExp, string][] = [
  [/altnames/i, /^/, 'Write the host in the URL by a name that its certificate has.'],
  [
    /certificate/i,
    /^/,
    "Name the authority that signed it: NODE_EXTRA_CA_CERTS=/path/to/ca.pem, in the daemon's environment too.",
  ],
  [
    /closed|ECONNRESET|RESP type|Protocol error/i,
    /^redis:/,
    'If it speaks TLS, write rediss:// in the place of redis://.',
  ],
  [/no answer|timeout/i, /^rediss:/, 'If it speaks no TLS, write redis:// in the place of rediss://.'],
];

function unreachable(shown: string, error: unknown): OomtuneError {
  const text = error instanceof Error ? error.message : String(error);
  if (!/NOAUTH|WRONGPASS/.test(text) && remedyOf(text, shown) !== null) {
    const refused = refusal(Object.assign(new Error(text), { name: 'ReplyError' }), null); // it is there, and answers
    if (refused !== null) return refused;
  }
  if (/NOAUTH|WRONGPASS|invalid (username|password)|AUTH/i.test(text)) {
    return new OomtuneError(
      'OOMTUNE_REDIS_UNREACHABLE',
      `Redis at ${shown} asks for ${/NOAUTH/.test(text) ? 'a' : 'another'} password.`,
      passwordRemedy(shown),
      { cause: new Error(text) }, // not the client's own error: that one carries the arguments of AUTH
    );
  }
  const why = WHY.find(([pattern]) => pattern.test(text))?.[1] ?? text.replace(/\.$/, '');
  return new OomtuneError(
    'OOMTUNE_REDIS_UNREACHABLE',
    `Redis at ${shown} cannot be reached: ${why}.`,
    REMEDIES.find(([said, url]) => said.test(text) && url.test(shown))?.[2] ??
      'Check --redis or OOMTUNE_REDIS_URL; leave both out to use the embedded Redis.',
    { cause: new Error(text) }, // not the client's own error: that one carries the arguments of AUTH
  );
}
