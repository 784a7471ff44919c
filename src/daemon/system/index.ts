/**
 * One daemon for all users of a machine. It alone reaches its Redis and devices' reservations; who calls its socket is told by the
 * kernel. Everything that touches a job's files or processes is done by an agent, a process with that user's rights.
 */
import { dirname, join } from 'node:path';
import type { Log } from '../../common/log.js';
import { type LedgerReading, ledgerReading } from '../../contract/launch.js';
import { loadNative } from '../../runtime/native.js';
import type { Run, Runtime } from '../../runtime/types.js';
import type { Follower, ReadersRedis, Store, StoredJob } from '../../store/index.js';
import type { Hands } from '../hands.js';
import { AgentHands, AgentRuns } from './agent-hands.js';
import { AgentJobs } from './agent-jobs.js';
import { type AgentCalls, Agents } from './agents.js';
import { Homes } from './homes.js';
import { leaseCalls } from './lease-calls.js';
import { DueSweeps } from './owned-environments.js';
import { Peers } from './peer.js';
import { readCalls } from './read-calls.js';
import { SystemServer } from './server.js';
import { steerCalls } from './steer-calls.js';

export interface SystemSettings {
  /** Where clients find it. */
  socket: string;
  /** Belongs to root; holds the users' folders. */
  home: string;
  /** Its members may do what root may. */
  adminGroup: string;
}

interface SystemParts {
  store: Store;
  runtime: Runtime;
  log: Log;
  version: string;
}

export class System {
  /** Of the machine: what was launched is reached by way of its owner's agent. */
  readonly runtime: Runtime;
  readonly #homes: Homes;
  readonly #log: Log;
  readonly #agents: Agents;
  readonly #dueSweeps: DueSweeps;
  #tidies = false;
  readonly #jobs: AgentJobs;
  readonly #server: SystemServer;
  readonly #readers: ReadersRedis;
  readonly #follower: Follower;

  constructor({ store, runtime, log, version }: SystemParts, settings: SystemSettings) {
    this.#homes = new Homes(settings.home);
    this.#log = log;
    const homes = this.#homes;
    const peers = new Peers(loadNative().addon, settings.adminGroup);
    this.#jobs = new AgentJobs({ store, runtime, runsOf: (uid) => homes.runsOf(uid) });
    const calls: AgentCalls = (...args) => this.#jobs.answer(...args);
    this.#agents = new Agents({ peers, homes, calls, url: `unix://${settings.socket}`, log });
    this.#dueSweeps = new DueSweeps(store);
    this.runtime = {
      devices: () => runtime.devices(),
      versions: () => runtime.versions(),
      launch: () => Promise.reject(new Error('the daemon of a machine launches nothing by itself')),
      adopt: (dir) => this.#adopt(dir),
    };
    this.#readers = store.readers(join(dirname(settings.socket), 'redis'), log);
    this.#follower = store.follower(log);
    const startedAt = new Date().toISOString();
    const about = { version, startedAt, homeOf: (peer: { uid: number; gid: number }) => homes.of(peer) };
    this.#server = new SystemServer({
      path: settings.socket,
      peers,
      calls: { ...readCalls(store, about), ...steerCalls(store), ...leaseCalls(store, runtime) },
      log,
    });
  }

  /** Null: its record does not say whose it is. */
  handsFor(job: StoredJob): Hands | null {
    if (job.uid == null) return null;
    return new AgentHands(job, job.uid, this.#agents, this.#jobs, this.#homes.runsOf(job.uid));
  }

  async #adopt(dir: string): Promise<Run | null> {
    const uid = this.#homes.ownerOf(dir);
    if (uid === null) return null;
    const run = await new AgentRuns(uid, this.#agents).adopt(dir);
    return (
      run && {
        ...run,
        dir,
        supervisorPid: 0,
        logFile: '',
        mainExit: () => null,
        ledger: this.#ledgerOf(uid, dir),
        signal: () => {}, // for jobs of a terminal
      }
    );
  }

  /** The reading before: each look asks the agent for the next. */
  #ledgerOf(uid: number, dir: string): () => LedgerReading | null {
    let last: LedgerReading | null = null;
    let asking = false;
    const ask = async (): Promise<void> => {
      const read = ledgerReading.safeParse(await this.#agents.call(uid, 'ledger', [dir]));
      if (read.success) last = read.data;
    };
    return () => {
      if (!asking) {
        asking = true;
        ask()
          .catch(() => {}) // the agent is gone, which whoever runs the job hears
          .finally(() => {
            asking = false;
          });
      }
      return last;
    };
  }

  async listen(): Promise<void> {
    await this.#server.listen();
    if (!(await this.#readers.start())) return;
    this.#follower.onEvent(({ type, fields }) => {
      if (type !== 'config' || !fields.key) return;
      this.#readers
        .copy(fields.key)
        .catch((err: unknown) => this.#log.warn({ err }, 'a recommendation was not copied'));
    });
    await this.#follower.start(1);
  }

  /** Users' folders are tidied by their agents: the daemon opens nothing in them. */
  async tidy(): Promise<void> {
    if (this.#tidies) return;
    this.#tidies = true;
    try {
      await this.#agents.tidy(await this.#dueSweeps.users(), (uid) => this.#dueSweeps.swept(uid));
    } finally {
      this.#tidies = false;
    }
  }

  async close(): Promise<void> {
    this.#follower.close();
    this.#readers.close();
    await this.#server.close();
  }

  /** After the daemon has let go of its jobs. */
  async end(): Promise<void> {
    await this.#agents.close();
  }
}
