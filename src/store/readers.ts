import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { findExecutable } from '../common/executable.js';
import type { Log } from '../common/log.js';
import { serverEnvironment } from './embedded.js';
import type { Keys } from './keys.js';
import { readHashes, write } from './replies.js';

/** Commands that read hashes and sorted sets. */
const READ = [
  ...['hgetall', 'hget', 'hmget', 'hexists', 'hkeys', 'hvals', 'hlen', 'exists', 'type', 'ping'],
  ...['zrange', 'zrevrange', 'zrangebyscore', 'zrevrangebyscore', 'zscore', 'zcard', 'scan'],
];
/** nobody's: it needs no right at all. */
const NOBODY = 65534;
const START_MS = 10_000;

/**
 * A Redis of copies, for other programs of the machine: everybody may connect, and read recommendations. The daemon's own is not
 * touched by whoever connects here; this one has no file, no right, and ends with the daemon.
 */
export class ReadersRedis {
  readonly socket: string;
  #server: ChildProcess | null = null;
  #copies: Redis | null = null;

  /** `folder`: made for it. */
  constructor(
    private readonly folder: string,
    private readonly source: Redis,
    private readonly keys: Keys,
    private readonly log: Log,
  ) {
    this.socket = join(folder, 'redis.sock');
  }

  /** Starts it and copies all. False, with a note in the log: it cannot be had here. */
  async start(): Promise<boolean> {
    const program = findExecutable('redis-server', process.env) ?? findExecutable('valkey-server', process.env);
    if (program === null) return this.#without(new Error('redis-server is not installed'));
    try {
      rmSync(this.folder, { recursive: true, force: true });
      mkdirSync(this.folder, { mode: 0o755 });
      chownSync(this.folder, NOBODY, NOBODY);
      const password = randomBytes(24).toString('hex');
      this.#spawn(program, password);
      await this.#connect(password);
      for (const key of await this.source.zrange(this.keys.configs, '0', '-1')) await this.copy(key);
      return true;
    } catch (error) {
      this.close();
      return this.#without(error);
    }
  }

  /** Copies a recommendation as it stands now. */
  async copy(key: string): Promise<void> {
    const [hash] = await readHashes(this.source, [this.keys.config(key)]);
    const at = await this.source.zscore(this.keys.configs, key);
    if (this.#copies === null || hash?.is !== 'value') return;
    const batch = this.#copies.multi().del(this.keys.config(key)).hset(this.keys.config(key), hash.value);
    await write(batch.zadd(this.keys.configs, at ?? '0', key));
  }

  close(): void {
    this.#copies?.disconnect();
    this.#copies = null;
    this.#server?.kill('SIGKILL'); // it holds nothing
    this.#server = null;
  }

  #without(error: unknown): false {
    this.log.warn({ err: error }, 'other programs cannot read recommendations from a Redis');
    return false;
  }

  #spawn(program: string, password: string): void {
    const become = [
      '--reuid',
      String(NOBODY),
      '--regid',
      String(NOBODY),
      '--clear-groups',
      '--pdeathsig',
      'KILL',
      '--',
    ];
    const child = spawn('setpriv', [...become, program, '-'], {
      cwd: '/',
      env: serverEnvironment(),
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    child.on('error', (error) => this.#without(error));
    child.on('exit', (code, signal) => {
      if (this.#server === child) this.#without(new Error(`it ended (${signal ?? code})`));
    });
    child.stdin?.on('error', () => {}); // it has ended, which is told
    child.stdin?.end(`${this.#config(password).join('\n')}\n`);
    this.#server = child;
  }

  #config(password: string): string[] {
    const { configs } = this.keys;
    const rights = READ.map((name) => `+${name}`).join(' ');
    return [
      'port 0',
      `unixsocket "${this.socket.replace(/[\\"]/g, '\\$&')}"`,
      'unixsocketperm 777',
      'save ""',
      'appendonly no',
      'maxmemory 256mb',
      'maxmemory-policy noeviction',
      'maxclients 1000',
      'timeout 300',
      `user default on nopass resetkeys resetchannels -@all ~${this.keys.config('*')} ~${configs} ${rights}`,
      `user oomtune on >${password} ~* resetchannels +@all`,
    ];
  }

  async #connect(password: string): Promise<void> {
    for (const until = Date.now() + START_MS; !existsSync(this.socket); await delay(20))
      if (Date.now() > until || this.#server?.exitCode !== null) throw new Error('it does not start');
    const copies = new Redis({
      path: this.socket,
      username: 'oomtune',
      password,
      protocol: 2,
      disableClientInfo: true,
    });
    copies.on('error', (error) => this.log.debug({ err: error }, 'the Redis of copies'));
    this.#copies = copies;
    await copies.ping();
  }
}
