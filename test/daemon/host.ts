import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ENDED_STATES } from '../../src/contract/job.js';
import type { JobOptions } from '../../src/contract/options.js';
import type { DaemonSettings } from '../../src/daemon/index.js';
import { stopDaemon, submitJob } from '../../src/daemon/index.js';
import { stopEmbeddedRedis } from '../../src/store/embedded.js';
import { hostName, type LeaseTimes, openStore, type Store, type StoredJob } from '../../src/store/index.js';
import { ROOT, until } from '../store/home.js';
import { options } from '../store/samples.js';

const FIXTURE = join(ROOT, 'test/fixtures/daemon/daemon.mjs');
/** `gpus`: models of GPUs that the daemon is to believe in. */
type Settings = Partial<DaemonSettings> & {
  leaseTimes?: Partial<LeaseTimes>;
  gpus?: (string | { model: string; foreign: number })[];
};

/** A host as a user has it: a home, a Redis, a daemon in a process of its own, and a client. */
export class Host {
  readonly home = mkdtempSync(join(tmpdir(), 'oomtune-daemon-'));
  /** Where jobs leave their traces. */
  readonly work = mkdtempSync(join(tmpdir(), 'oomtune-work-'));
  /** Whose the jobs are that are submitted from now on, as a daemon for several users would write; absent: who runs the test. */
  owner: string | undefined;
  daemon: ChildProcess | null = null;
  said = '';
  #store: Store | null = null;

  readonly url: string | null;
  readonly #shells = new Set<string>();

  /** Becomes the host of this process: a test file has one at a time. `url` null: the embedded Redis. */
  constructor(url: string | null = null) {
    this.url = url;
    process.env.OOMTUNE_HOME = this.home;
    delete process.env.OOMTUNE_REDIS_URL;
  }

  async store(): Promise<Store> {
    this.#store ??= await openStore({ url: this.url, onOutage: () => {} });
    return this.#store;
  }

  /** Starts a daemon and waits until it takes jobs. */
  async start(settings: Settings = {}, env: NodeJS.ProcessEnv = {}, prefix: string[] = []): Promise<ChildProcess> {
    const argv = [...prefix, process.execPath, FIXTURE, JSON.stringify({ cpuLanes: 4, ...settings })];
    const child = spawn(argv[0] as string, argv.slice(1), {
      env: {
        PATH: process.env.PATH,
        HOME: this.home,
        LANG: 'C.UTF-8',
        OOMTUNE_HOME: this.home,
        ...(this.url === null ? {} : { OOMTUNE_REDIS_URL: this.url }),
        ...env,
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      said += text;
      this.said += text;
    });
    this.daemon = child;
    await until(() => said.includes('daemon ready') || child.exitCode !== null, 30);
    if (child.exitCode !== null) throw new Error(`the daemon ended: ${said}`);
    return child;
  }

  /** kill -9. */
  async kill(child = this.daemon): Promise<void> {
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  async stop({ kill = false }: { kill?: boolean } = {}): Promise<boolean> {
    return stopDaemon(await this.store(), { kill });
  }

  async submit(
    command: string[],
    changes: Partial<JobOptions> = {},
    environment: NodeJS.ProcessEnv = process.env,
  ): Promise<string> {
    const wanted = options({ cwd: this.work, budget: '64MiB', ...changes });
    const owner = this.owner === undefined ? {} : { owner: this.owner };
    return (await submitJob(await this.store(), { command, options: wanted, environment, ...owner })).job;
  }

  /** A job that runs this line of shell, and counts its starts in the file `starts`. */
  async shell(line: string, changes: Partial<JobOptions> = {}): Promise<string> {
    const id = await this.submit(['/bin/sh', '-c', `echo $OOMTUNE_JOB_ID $$ >> starts; ${line}`], changes);
    this.#shells.add(id);
    return id;
  }

  async job(id: string): Promise<StoredJob> {
    const job = await (await this.store()).jobs.get(id);
    if (job === null) throw new Error(`there is no ${id}`);
    return job;
  }

  /** Waits until the job is in this state; one that is running has also begun with its line of shell. */
  async state(id: string, state: StoredJob['state'], seconds = 20): Promise<StoredJob> {
    try {
      await until(async () => (await this.job(id)).state === state, seconds);
      // A job is running as soon as it is launched: before its own first instruction.
      if (state === 'running' && this.#shells.has(id)) await until(() => this.starts(id) > 0, seconds);
    } catch {
      const { state: is, reason, failure } = await this.job(id);
      throw new Error(`${id} is ${is}, not ${state}: ${reason} ${JSON.stringify(failure)}\n${this.said.slice(-3000)}`);
    }
    return this.job(id);
  }

  async ended(id: string, seconds = 30): Promise<StoredJob> {
    await until(async () => ENDED_STATES.includes((await this.job(id)).state), seconds);
    return this.job(id);
  }

  lines(name: string): string[] {
    const file = join(this.work, name);
    return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
  }

  /** How often a job's command was started. */
  starts(id: string): number {
    return this.lines('starts').filter((line) => line.startsWith(id)).length;
  }

  /** Living processes of this host's jobs, supervisors included. */
  processes(): number[] {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => {
        try {
          const state = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').at(-1)?.[0];
          if (state === 'Z' || state === 'X') return false;
          const mark = `${this.home}/runs/`;
          return (
            readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`OOMTUNE_RUN_DIR=${mark}`) ||
            readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(mark)
          );
        } catch {
          return false;
        }
      });
  }

  /** Nothing is left when the last job has ended: no process, no lease, nothing in a queue. */
  async leftOver(): Promise<string[]> {
    // A job's state is told before its entry leaves the queue
    const until = Date.now() + 20_000;
    let left = await this.#traces();
    while (left.length > 0 && Date.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      left = await this.#traces();
    }
    return left;
  }

  async #traces(): Promise<string[]> {
    const store = await this.store();
    const left = this.processes().map((pid) => `process ${pid}`);
    left.push(...(await store.leasing.list()).map((lease) => `lease of ${lease.owner}`));
    const { redis } = store.connection;
    if ((await redis.hlen(store.keys.leaseQueue)) > 0) left.push('a place in the lease queue');
    for (const key of await redis.keys(`${store.keys.prefix}:*`)) {
      if (/:(active|wait|prioritized|delayed|stalled|failed|completed)$/.test(key)) left.push(key);
      if (/:c(pu|uda)[^:]*:j-/.test(key)) left.push(key);
    }
    return left;
  }

  async close(): Promise<void> {
    process.env.OOMTUNE_HOME = this.home;
    await this.stop({ kill: true }).catch(() => {});
    await this.kill();
    for (const pid of this.processes()) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // it has just ended by itself
      }
    }
    await this.#store?.close();
    if (this.url === null) await stopEmbeddedRedis();
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 }); // a Redis may be on its way out
    rmSync(this.work, { recursive: true, force: true });
  }
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
export { hostName };
