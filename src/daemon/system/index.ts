/**
 * One daemon for all users of a machine. It alone reaches its Redis and devices' reservations; who calls its socket is told by the
 * kernel. Everything that touches a job's files or processes is done by an agent, a process with that user's rights.
 */
import type { Log } from '../../common/log.js';
import { loadNative } from '../../runtime/native.js';
import type { Run, Runtime } from '../../runtime/types.js';
import type { Store, StoredJob } from '../../store/index.js';
import type { Hands } from '../hands.js';
import { AgentHands, AgentRuns } from './agent-hands.js';
import { AgentJobs } from './agent-jobs.js';
import { type AgentCalls, Agents } from './agents.js';
import { Homes } from './homes.js';
import { leaseCalls } from './lease-calls.js';
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
  readonly #agents: Agents;
  readonly #jobs: AgentJobs;
  readonly #server: SystemServer;

  constructor({ store, runtime, log, version }: SystemParts, settings: SystemSettings) {
    this.#homes = new Homes(settings.home);
    const homes = this.#homes;
    const peers = new Peers(loadNative().addon, settings.adminGroup);
    this.#jobs = new AgentJobs({ store, runtime, runsOf: (uid) => homes.runsOf(uid) });
    const calls: AgentCalls = (...args) => this.#jobs.answer(...args);
    this.#agents = new Agents({ peers, homes, calls, log });
    this.runtime = {
      devices: () => runtime.devices(),
      versions: () => runtime.versions(),
      launch: () => Promise.reject(new Error('the daemon of a machine launches nothing by itself')),
      adopt: (dir) => this.#adopt(dir),
    };
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
    return run && { ...run, dir, supervisorPid: 0, logFile: '', ledger: () => null };
  }

  listen(): Promise<void> {
    return this.#server.listen();
  }

  async close(): Promise<void> {
    await this.#server.close();
  }

  /** After the daemon has let go of its jobs. */
  async end(): Promise<void> {
    await this.#agents.close();
  }
}
