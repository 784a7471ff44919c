// What the faults strike: a home on a disk of its own, its daemon (started again whenever it ends), its Redis, its jobs.
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
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

/** Tries again until it is done: our own client meets the faults too. */
export async function insist(action, seconds = 120) {
  for (const until = Date.now() + seconds * 1000; ; await sleep(200)) {
    try {
      return await action();
    } catch (error) {
      if (Date.now() > until) throw error;
    }
  }
}

export class World {
  /** A mount of its own, so that it can be filled. */
  disk = mkdtempSync(join(tmpdir(), 'oomtune-chaos-'));
  home = join(this.disk, 'home');
  /** Where jobs note what they did: not on that disk. */
  work = mkdtempSync(join(tmpdir(), 'oomtune-chaos-work-'));
  jobs = new Map();
  /** Jobs that a fault struck directly: `lost` lost their supervisor, `hit` their own process. */
  lost = new Set();
  hit = new Set();
  daemonStarts = 0;
  #daemon = null;
  #ending = false;

  constructor(lanes) {
    this.lanes = lanes;
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=768m', 'tmpfs', this.disk]);
    mkdirSync(this.home, { mode: 0o700 });
    process.env.OOMTUNE_HOME = this.home;
  }

  async open() {
    const store = await import(join(ROOT, 'dist/store/index.js'));
    this.daemonApi = await import(join(ROOT, 'dist/daemon/index.js'));
    this.store = await store.openStore({ onOutage: () => {} });
    this.stopRedis = store.stopRedis;
    this.#run();
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

  get daemonPid() {
    return this.#daemon?.pid ?? null;
  }

  #run() {
    if (this.#ending) return;
    const settings = {
      cpuLanes: this.lanes,
      sweepMs: 2000,
      heartbeatMs: 1000,
      cancelLookMs: 500,
      renewMs: 5000,
      roomBytes: 32 << 20,
    };
    const log = openSync(join(this.work, 'daemon.log'), 'a');
    this.daemonStarts += 1;
    this.#daemon = spawn(process.execPath, [join(ROOT, 'test/fixtures/daemon/daemon.mjs'), JSON.stringify(settings)], {
      env: { PATH: process.env.PATH, HOME: this.home, OOMTUNE_HOME: this.home, LANG: 'C.UTF-8' },
      stdio: ['ignore', 'ignore', log],
    });
    closeSync(log);
    this.#daemon.once('exit', () => setTimeout(() => this.#run(), 300));
  }

  async close() {
    this.#ending = true;
    this.#daemon?.kill('SIGCONT');
    await this.daemonApi.stopDaemon(this.store, { kill: true }).catch(() => {});
    this.#daemon?.kill('SIGKILL');
    await this.store.close();
    await this.stopRedis().catch(() => {});
    execFileSync('umount', ['--lazy', this.disk]);
    rmSync(this.disk, { recursive: true, force: true });
    rmSync(this.work, { recursive: true, force: true });
  }

  lines(name) {
    try {
      return readFileSync(join(this.work, name), 'utf8').trim().split('\n');
    } catch {
      return [];
    }
  }

  /** Living processes of this home's jobs: `role` supervisor, keeper or job; `dir` the launch folder, `job` the id. */
  processes() {
    const mark = `${this.home}/runs/`;
    const found = [];
    for (const name of readdirSync('/proc')) {
      if (!/^\d+$/.test(name)) continue;
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'latin1').split(') ').at(-1).split(' ');
        if (stat[0] === 'Z' || stat[0] === 'X') continue;
        const command = readFileSync(`/proc/${name}/cmdline`, 'latin1').split('\0');
        const variable = readFileSync(`/proc/${name}/environ`, 'latin1')
          .split('\0')
          .find((one) => one.startsWith('OOMTUNE_RUN_DIR='));
        const supervises = command[0]?.endsWith('oomtune-supervisor') && command.at(-2)?.startsWith(mark);
        const dir = supervises ? command.at(-2) : variable?.slice('OOMTUNE_RUN_DIR='.length);
        if (!dir?.startsWith(mark)) continue;
        found.push({
          pid: Number(name),
          parent: Number(stat[1]),
          dir,
          job: dir.slice(mark.length).split('/')[0],
          supervises,
        });
      } catch {} // it is gone
    }
    const above = new Set(found.filter((one) => one.supervises).map((one) => one.pid));
    for (const one of found) one.role = !one.supervises ? 'job' : above.has(one.parent) ? 'supervisor' : 'keeper';
    return found;
  }
}
