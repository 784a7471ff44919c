// What the faults strike: two hosts, the first one's Redis and its disk, the jobs of both.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { Host, ROOT } from './host.mjs';

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The same draws for the same seed (mulberry32). */
export function draws(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Seconds in which a call of a client that is not refused has to end: Redis is never away for so long. */
const CALL = 60;

/** Tries again until it is done: our own client meets the faults too. Rejects for a call that never ends. */
export async function insist(action, seconds = 120) {
  for (const until = Date.now() + seconds * 1000; ; await sleep(200)) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`a call has not ended within ${CALL} s: ${action}`)), CALL * 1000);
    });
    try {
      return await Promise.race([action(), late]);
    } catch (error) {
      if (Date.now() > until || error.message?.startsWith('a call has not ended')) throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

export class World {
  /** A mount of its own, so that it can be filled. */
  disk = mkdtempSync(join(tmpdir(), 'oomtune-chaos-'));
  /** Where jobs note what they did: not on that disk. */
  work = mkdtempSync(join(tmpdir(), 'oomtune-chaos-work-'));
  /** All that were submitted, with their kinds. */
  jobs = new Map();
  /** Jobs that a fault struck directly: `lost` lost their supervisor, `hit` their own process. */
  lost = new Set();
  hit = new Set();
  /** Jobs of a host that was given up while it ran them: they may run on another at the same time. */
  given = new Set();
  /** Jobs that were in Redis only when it lost its data. */
  gone = new Set();
  /** Jobs that a host had just taken then, or that were being submitted: they may be lost, or be written back. */
  unsure = new Set();
  /** Rises when data begins to be lost, and when it has been. */
  losses = 0;
  /** End states of jobs whose records may be lost. */
  ended = new Map();
  /** How often a job had been started when it had ended, or was lost: it must not be again. */
  sealed = new Map();
  /** Seconds until each job was written back that was held by a daemon when Redis lost its data. */
  writtenBack = [];
  /** Whatever else went wrong, in words. */
  wrong = [];

  constructor(lanes) {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=768m', 'tmpfs', this.disk]);
    const home = join(this.disk, 'home');
    const shared = { work: this.work, lanes, onDeath: (why) => this.wrong.push(why) };
    const url = `unix://${join(home, 'redis', 'redis.sock')}`;
    this.hosts = [
      new Host({ ...shared, name: 'chaos-a', home, url: null }),
      new Host({ ...shared, name: 'chaos-b', home: mkdtempSync(join(tmpdir(), 'oomtune-chaos-b-')), url }),
    ];
    this.#be(this.hosts[0]);
  }

  get home() {
    return this.hosts[0].home;
  }

  async open() {
    const store = await import(join(ROOT, 'dist/store/index.js'));
    this.daemonApi = await import(join(ROOT, 'dist/daemon/index.js'));
    this.store = await store.openStore({ onOutage: () => {} });
    /** A client for which a host is lost as soon as its heartbeat has expired. */
    this.hasty = await store.openStore({ onOutage: () => {}, lostMs: 1000 });
    this.stopRedis = store.stopRedis;
    for (const host of this.hosts) host.run();
  }

  /**
   * One command by a user of our own: what is forbidden to all others must not keep us from allowing it again. A Redis that was
   * started anew has forgotten him.
   */
  async admin(...command) {
    for (let tries = 0; ; tries += 1) {
      const redis = new Redis({
        path: join(this.home, 'redis', 'redis.sock'),
        ...{ username: 'chaos', password: 'chaos', lazyConnect: true, maxRetriesPerRequest: 0, retryStrategy: null },
      });
      redis.on('error', () => {});
      try {
        // A client whose password is refused may say nothing of it
        const late = sleep(5000).then(() => Promise.reject(new Error('no answer within 5 s')));
        late.catch(() => {});
        return await Promise.race([redis.connect().then(() => redis.call(...command)), late]);
      } catch (error) {
        if (tries > 5) throw error;
        const user = ['ACL', 'SETUSER', 'chaos', 'on', '>chaos', '~*', '&*', '+@all'];
        await Promise.race([this.store.connection.redis.call(...user), sleep(1000)]).catch(() => {});
        await sleep(200);
      } finally {
        redis.disconnect();
      }
    }
  }

  processes() {
    return this.hosts.flatMap((host) => host.processes());
  }

  lines(name) {
    try {
      return readFileSync(join(this.work, name), 'utf8').trim().split('\n');
    } catch {
      return [];
    }
  }

  startsOf(id) {
    return this.lines('starts').filter((line) => line.startsWith(`${id} `)).length;
  }

  #be({ home, name }) {
    process.env.OOMTUNE_HOME = home;
    process.env.OOMTUNE_HOST = name;
  }

  async close() {
    for (const host of this.hosts) {
      await host.leave();
      this.#be(host);
      await this.daemonApi.stopDaemon(this.store, { kill: true }).catch(() => {});
    }
    this.#be(this.hosts[0]);
    await this.store.close();
    await this.hasty.close();
    await this.stopRedis().catch(() => {});
    execFileSync('umount', ['--lazy', this.disk]);
    for (const path of [this.disk, this.work, this.hosts[1].home]) rmSync(path, { recursive: true, force: true });
  }
}
